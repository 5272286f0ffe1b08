"""Made by `tools/package_stubs.py`."""

from tilewright.meta_schedule.measure_callback.base import Batch as Batch
from tilewright.meta_schedule.measure_callback.base import MEASURE_CALLBACKS as MEASURE_CALLBACKS
from tilewright.meta_schedule.measure_callback.base import MeasureCallback as MeasureCallback
from tilewright.meta_schedule.measure_callback.base import PyMeasureCallback as PyMeasureCallback
from tilewright.meta_schedule.measure_callback.base import Trial as Trial
from tilewright.meta_schedule.measure_callback.base import default_callbacks as default_callbacks
from tilewright.meta_schedule.measure_callback.default import AddToDatabase as AddToDatabase
from tilewright.meta_schedule.measure_callback.default import RemoveBuildArtifact as RemoveBuildArtifact
from tilewright.meta_schedule.measure_callback.default import UpdateCostModel as UpdateCostModel
from tilewright.meta_schedule.measure_callback.keep_trial_log import KeepTrialLog as KeepTrialLog
