"""Reports for people: a page about a tuning run, and why a function has its schedule."""

from __future__ import annotations

from tilewright.meta_schedule.report.explain import Explanation, explain_record, explain_rule
from tilewright.meta_schedule.report.page import write_report
from tilewright.meta_schedule.report.roofline import peaks_here

__all__ = ["Explanation", "explain_record", "explain_rule", "peaks_here", "write_report"]
