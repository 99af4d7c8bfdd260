"""The group benchmark runs and reports every measurement. No figure is asserted."""

from __future__ import annotations

from benchmarks import groups

TINY = groups.Extent(rounds=1, heartbeats_s=(0.2,), groups=3, commit_s=0.1, connections=2)


def test_every_measurement_is_reported() -> None:
    measured = (
        groups.measure_rejoin("barnabas", groups.BarnabasMember, 0.2)
        | groups.measure_memory(TINY)
        | groups.measure_commits(TINY, 2)
    )
    found = {name: [value] for name, value in measured.items()}
    assert found["rejoin/barnabas, a heartbeat every 0.2 s/s"][0] > 0
    assert found["commits/of 2 partitions/per_s"][0] > 0
    assert found["memory/3 groups of 10 partitions, the whole broker/mb"][0] > 1
    lines = list(groups.table(found))
    assert len(lines) == 1 + len(found)
    assert sum("≤" in line or "≥" in line for line in lines) == 3
