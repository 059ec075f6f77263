"""Services of the configuration center, and the watcher that daemons use."""

from apps.configcenter.engine.kinds import (
    ConfigKind,
    DataProblem,
    Problem,
    Unreadable,
    YamlKind,
    all_kinds,
    register,
)
from apps.configcenter.services.activation import activate, deactivate, notify_watchers, revert
from apps.configcenter.services.kinds import (
    errors_of,
    kind_named,
    problems_of,
    read_text,
    refuse_errors,
    shown_by,
)
from apps.configcenter.services.versions import (
    ConfigCheck,
    SaveResult,
    check_data,
    configuration_of,
    save_version,
)
from apps.configcenter.services.watcher import PLATFORM, ActiveVersion, ConfigWatcher

__all__ = [
    "PLATFORM",
    "ActiveVersion",
    "ConfigCheck",
    "ConfigKind",
    "ConfigWatcher",
    "DataProblem",
    "Problem",
    "SaveResult",
    "Unreadable",
    "YamlKind",
    "activate",
    "all_kinds",
    "check_data",
    "configuration_of",
    "deactivate",
    "errors_of",
    "kind_named",
    "notify_watchers",
    "problems_of",
    "read_text",
    "refuse_errors",
    "register",
    "revert",
    "save_version",
    "shown_by",
]
