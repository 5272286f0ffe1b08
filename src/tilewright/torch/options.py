"""Options of the backend: how the kernels of a graph get their schedules."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tilewright.ir import Pass
from tilewright.relax import get_pipeline
from tilewright.support.errors import BuildError
from tilewright.support.registry import near_matches

MODES = ("rules", "database", "tune")


@dataclass(frozen=True)
class Options:
    """What ``torch.compile(..., options={...})`` may say.

    ``mode`` is ``"rules"`` (schedules by rule), ``"database"`` (those that the database in
    ``work_dir`` has, the rest by rule) or ``"tune"`` (tune for ``trials`` trials into ``work_dir``
    first, for each graph). ``work_dir`` may be the URL of a database. ``threads`` is how many
    threads a kernel may use (default: as many as there are cores). With ``freezing``, parameters
    and buffers are constants of inference graphs, whose weights are packed once; where a call
    finds that they changed, it takes code without constants, which is compiled then. ``pipeline``
    (a pass, or the name of a registered pipeline) runs over each graph first.
    """

    mode: str = "rules"
    work_dir: str | os.PathLike[str] | None = None
    threads: int | None = None
    trials: int = 200
    freezing: bool = False
    pipeline: str | Pass | None = None

    @classmethod
    def parse(cls, given: Mapping[str, Any] | None) -> Options:
        """Check options that a user wrote.

        Raises ``BuildError``, which names the known ones, for others and for wrong values.
        """
        given = dict(given or {})
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise BuildError(
                    f"the backend has no option {name!r}; {near_matches(str(name), known)}; the "
                    f"options are {', '.join(known)}"
                )
        made = cls(**given)
        if made.mode not in MODES:
            raise BuildError(f"option 'mode' is one of {', '.join(MODES)}, got {made.mode!r}")
        if made.mode != "rules" and made.work_dir is None:
            raise BuildError(
                f"mode {made.mode!r} needs the option 'work_dir', the database's place"
            )
        if made.mode == "rules" and made.work_dir is not None:
            raise BuildError("option 'work_dir' is for the modes 'database' and 'tune'")
        if made.mode != "tune" and "trials" in given:
            raise BuildError("option 'trials' is for the mode 'tune'")
        for name in ("threads", "trials"):
            value = getattr(made, name)
            if value is not None and (type(value) is not int or value < 1):
                raise BuildError(f"option {name!r} is a positive integer, got {value!r}")
        if type(made.freezing) is not bool:
            raise BuildError(f"option 'freezing' is True or False, got {made.freezing!r}")
        if made.pipeline is not None and not callable(made.pipeline):
            if not isinstance(made.pipeline, str):
                raise BuildError(f"option 'pipeline' is a pass or a name, got {made.pipeline!r}")
            get_pipeline(made.pipeline)
        return made
