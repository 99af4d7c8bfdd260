from __future__ import annotations

from barnabas.cli.groups.describe import described_groups_text, group_document, short_member_ids
from barnabas.cli.groups.list import group_table
from barnabas.cli.terminal.output import number_ranges
from barnabas.client.group_admin import GroupView, MemberView
from barnabas.client.group_offsets import GroupOffset
from barnabas.model import TopicPartition


def partitions(*numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("orders", number) for number in numbers)


def group(state: str = "Stable", members: tuple[MemberView, ...] = ()) -> GroupView:
    return GroupView("billing", state, "consumer", "range", "h:9092", members)


ONE = MemberView("loader-0b8d1c77-aa", None, "loader", "10.0.0.7", partitions(0, 1, 3))
TWO = MemberView("loader-91e2f0aa-bb", None, "loader", "10.0.0.8", partitions(2))


def test_lag_is_end_minus_committed_offset() -> None:
    p0, p1, p2, p3 = partitions(0, 1, 2, 3)
    document = group_document(
        group(members=(ONE, TWO)),
        {
            p0: GroupOffset(7),
            p1: GroupOffset(30),
            TopicPartition("gone", 0): GroupOffset(1),
        },
        {p0: 10, p1: 10, p2: 4, p3: 0},
    )
    assert [(each["topic"], each["partition"], each["lag"]) for each in document["offsets"]] == [
        ("gone", 0, None),
        ("orders", 0, 3),
        ("orders", 1, 0),
        ("orders", 2, None),
        ("orders", 3, None),
    ]
    assert document["lag"] == 3
    assert document["offsets"][1]["member_id"] == ONE.member_id


def test_text_shows_lag_and_members() -> None:
    document = group_document(
        group(members=(ONE, TWO)),
        {each: GroupOffset(5) for each in partitions(0, 1, 2)},
        dict.fromkeys(partitions(0, 1, 2, 3), 10),
    )
    assert described_groups_text({"groups": [document]}).splitlines() == [
        "group billing: Stable, 2 members, assignor range, lag 15",
        "  coordinator h:9092",
        "TOPIC   PARTITION  COMMITTED  END  LAG  MEMBER",
        "orders          0          5   10    5  0b8d1c77",
        "orders          1          5   10    5  0b8d1c77",
        "orders          2          5   10    5  91e2f0aa",
        "orders          3          -   10    -  0b8d1c77",
        "",
        "MEMBER    CLIENT  HOST      PARTITIONS",
        "0b8d1c77  loader  10.0.0.7  orders 0-1,3",
        "91e2f0aa  loader  10.0.0.8  orders 2",
    ]


def test_empty_group_shows_offsets_only() -> None:
    view = GroupView("billing", "Empty", "consumer", "", "h:9092", ())
    document = group_document(view, {partitions(0)[0]: GroupOffset(5)}, {})
    lines = described_groups_text({"groups": [document]}).splitlines()
    assert lines[0] == "group billing: Empty, 0 members"
    assert lines[-1].split() == ["orders", "0", "5", "-", "-"]


def test_member_ids_are_shortened_while_unique() -> None:
    same = [
        {"member_id": f"c-same-{end}", "client_id": "c", "instance_id": None} for end in ("1", "2")
    ]
    assert short_member_ids(same) == {"c-same-1": "same-1", "c-same-2": "same-2"}


def test_instance_id_of_static_member_is_not_shortened() -> None:
    static = [{"member_id": "web-1-0b8d", "client_id": "c", "instance_id": "web-1"}]
    assert short_member_ids(static) == {"web-1-0b8d": "web-1"}


def test_consecutive_partitions_are_shown_as_ranges() -> None:
    assert number_ranges([]) == ""
    assert number_ranges([4]) == "4"
    assert number_ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"


def test_empty_list_shows_next_step() -> None:
    assert "barnabas consume TOPIC --group NAME" in group_table({"groups": []})
    assert described_groups_text({"groups": []}) == group_table({"groups": []})
