"""The setting `data` of what learns: one folder or file, or several that are read one after another."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

__all__ = ["DataFolders", "DataSources"]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str | Path) else value


_Paths = Annotated[tuple[Path, ...], BeforeValidator(_listed)]

DataFolders = Annotated[
    _Paths,
    Field(min_length=1, description="Folder that `outrider train data` wrote with this target, or a list of them"),
]

DataSources = Annotated[
    _Paths,
    Field(
        min_length=1,
        description="Folder of `outrider train data`, or a UTF-8 text file with blank lines between its texts, "
        "or a list of them",
    ),
]
