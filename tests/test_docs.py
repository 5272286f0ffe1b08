"""Pages that are made from the code are up to date, and name all that the language has."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# What a user of TensorIR looks for, and what is new here.
LANGUAGE = """
sample_perfect_tile sample_partitioned_tile sample_categorical sample_compute_location sample_tile
get_block get_loops get_child_blocks get_producers get_consumers get_output_blocks get_sref
has_block split loop_partition merge fuse reorder reorder_block_iter_var add_unit_loop parallel
vectorize bind unroll compute_at reverse_compute_at compute_inline reverse_compute_inline
fuse_reduction_epilogue cache_read cache_write reindex reindex_cache_read reindex_cache_write
cache_inplace cache_index read_at write_at rolling_buffer decompose_reduction rfactor
transform_layout transform_block_layout set_axis_separator storage_align set_scope
unsafe_set_dtype decompose_padding pad_einsum blockize tensorize annotate unannotate
annotate_buffer_access unsafe_hide_buffer_access enter_postproc work_on copy seed fork_seed
remove_rv show can_decompose_padding suggest_index_map tile_with_tensor_intrin
get_tensorize_loop_mapping undo explain
""".split()


@pytest.mark.parametrize(
    "tool", ["package_stubs.py", "reference_pages.py", "results_chart.py", "schedule_stub.py"]
)
def test_what_is_made_from_the_code_is_up_to_date(tool: str) -> None:
    found = subprocess.run(
        [sys.executable, str(ROOT / "tools" / tool), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_every_primitive_has_a_row() -> None:
    page = (ROOT / "docs" / "primitives.md").read_text()
    rows = set(re.findall(r"^\| `(?:sch\.)?(\w+)` \|", page, re.M))
    assert not set(LANGUAGE) - rows


def test_gallery_has_ten_errors_that_say_what_to_do() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    errors = re.findall(r"```text\n(.*?)```", page, re.S)
    assert len(errors) >= 10
    assert sum("what to do:" in text for text in errors) >= 10
