from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adversary.measure import Stages


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    stages = Stages(tmp_path_factory.mktemp("adversary"))
    yield stages
    stages.close()
