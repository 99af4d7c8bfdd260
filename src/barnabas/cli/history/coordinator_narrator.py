"""Text of events of groups and transactional ids: one line per event, with a heading for each coordinator and day."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.cli.history.timeline import Event
from barnabas.cli.terminal.output import plural, wrap
from barnabas.history.words import format_duration


class CoordinatorNarrator:
    """Formats events as text. The strings of the events must be printable (see barnabas/printable.py)."""

    def __init__(self) -> None:
        self.heading: tuple[object, ...] = ()

    def lines(self, events: list[Event]) -> Iterator[str]:
        for event in events:
            day, _, time = str(event.get("at", "")).rstrip("Z").partition("T")
            broker = event.get("broker")
            if event.get("role") == "leader":
                by = f"leader {broker} of partition {event.get('partition')}"
            else:
                by = f"coordinator {broker}, epoch {event.get('coordinator_epoch', -1)}"
            if (day, by) != self.heading:
                self.heading = (day, by)
                yield f"{day} {by}"
            yield wrap(f"  {time}  {event_sentence(event)}", indent=len(time) + 6)


def event_sentence(event: Event) -> str:
    text = group_text(event) if event.get("what") == "group" else transaction_event_text(event)
    why = f": {event['why']}" if event.get("why") else ""
    return f"{text}{why}{requester_text(event)}"


def requester_text(event: Event) -> str:
    """
    >>> requester_text({"by": "app", "host": "10.0.0.7"}), requester_text({})
    (' by app at 10.0.0.7', '')
    """
    if "host" not in event:
        return ""
    return f" by {event.get('by') or 'a client without a name'} at {event['host']}"


def group_text(event: Event) -> str:
    """Return, for example:

    rebalanced to generation 4 with 2 members
    removed member app-6b1f… (app at 10.0.0.7), 1 member left
    """
    members = plural(event["members"], "member")
    number = "generation" if event["protocol"] == "classic" else "epoch"
    state = f"{number} {event['generation']} with {members}"
    match event["after"]:
        case "rebalanced":
            return f"rebalanced to {state}"
        case "member removed":
            return f"removed member {event.get('member')}{client_text(event)}, {members} left"
        case "empty":
            return "empty, the last member is gone"
        case "deleted":
            return "deleted"
        case "migrated":
            return f"migrated to the {event['protocol']} protocol, {state}"
        case "loaded":
            return f"loaded by a new coordinator, {event['protocol']} protocol, {state}"
        case other:
            return str(other)


def client_text(event: Event) -> str:
    """Return the client of a member: ` (app at 10.0.0.7)`."""
    if "member_host" not in event:
        return ""
    return f" ({event.get('client') or 'a client without a name'} at {event['member_host']})"


def transaction_event_text(event: Event) -> str:
    """Return, for example:

    aborted the transaction of producer 1000, epoch 3 (open for 12.0 s, 2 partitions)
    """
    producer = f"producer {event['producer_id']}, epoch {event['producer_epoch']}"
    if event.get("role") == "leader":
        return f"{event['after']} the transaction of {producer} in this partition"
    match event["after"]:
        case "aborted":
            return f"aborted the transaction of {producer}{extent_text(event)}"
        case "fenced":
            return f"fenced {producer}"
        case "taken over":
            return f"took over the transaction of {producer}{extent_text(event)}"
        case "expired":
            return f"expired, last {producer}"
        case other:
            return f"{other}, {producer}"


def extent_text(event: Event) -> str:
    """
    >>> extent_text({"open_ms": 12_000, "partitions": 2}), extent_text({})
    (' (open for 12.0 s, 2 partitions)', '')
    """
    parts = [f"open for {format_duration(event['open_ms'])}"] if "open_ms" in event else []
    parts += [plural(event["partitions"], "partition")] if "partitions" in event else []
    return f" ({', '.join(parts)})" if parts else ""
