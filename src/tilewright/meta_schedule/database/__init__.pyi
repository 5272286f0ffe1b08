"""Made by `tools/package_stubs.py`."""

create = Database.create
from tilewright.meta_schedule.database.base import DATABASES as DATABASES
from tilewright.meta_schedule.database.base import Database as Database
from tilewright.meta_schedule.database.base import PyDatabase as PyDatabase
from tilewright.meta_schedule.database.base import is_url as is_url
from tilewright.meta_schedule.database.filtered import Filtered as Filtered
from tilewright.meta_schedule.database.filtered import measured_alike as measured_alike
from tilewright.meta_schedule.database.json_file import JSONDatabase as JSONDatabase
from tilewright.meta_schedule.database.memory import MemoryDatabase as MemoryDatabase
from tilewright.meta_schedule.database.opening import open_place as open_place
from tilewright.meta_schedule.database.record import MODULE_EQUALITIES as MODULE_EQUALITIES
from tilewright.meta_schedule.database.record import TuningRecord as TuningRecord
from tilewright.meta_schedule.database.record import Workload as Workload
from tilewright.meta_schedule.database.schedule_fn import ScheduleFnDatabase as ScheduleFnDatabase
from tilewright.meta_schedule.database.sql import SQLDatabase as SQLDatabase
from tilewright.meta_schedule.database.union import OrderedUnionDatabase as OrderedUnionDatabase
from tilewright.meta_schedule.database.union import UnionDatabase as UnionDatabase
