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
from apps.configcenter.services.activation import activate, deactivate, revert, tell_all_followers
from apps.configcenter.services.kinds import (
    errors_of,
    kind_named,
    problems_of,
    read_text,
    refuse_errors,
    shown_by,
)
from apps.configcenter.services.versions import (
    Saved,
    Tried,
    configuration_of,
    save_version,
    try_data,
)
from apps.configcenter.services.watcher import PLATFORM, Active, ConfigWatcher

__all__ = [
    "PLATFORM",
    "Active",
    "ConfigKind",
    "ConfigWatcher",
    "DataProblem",
    "Problem",
    "Saved",
    "Tried",
    "Unreadable",
    "YamlKind",
    "activate",
    "all_kinds",
    "configuration_of",
    "deactivate",
    "errors_of",
    "kind_named",
    "problems_of",
    "read_text",
    "refuse_errors",
    "register",
    "revert",
    "save_version",
    "shown_by",
    "tell_all_followers",
    "try_data",
]
