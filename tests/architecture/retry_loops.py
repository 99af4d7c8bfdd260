"""Find retry loops that do not back off, by following the paths through their syntax trees.

A retry loop is a `while` loop, or a `for` loop over `range(...)`, that handles an error and then
makes another turn. The handler is an `except` clause or a `with suppress(...)`. Every path from the
handler to the next turn must pass through `barnabas.retry.Backoff`: `await backoff.wait()`, or
`backoff.next_s()` as the argument of a sleep. The name of the variable must end in `backoff`. A
function of the same module counts if it backs off on every path.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple

HANDLER = ast.ExceptHandler | ast.With | ast.AsyncWith
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
LOOP = ast.While | ast.For | ast.AsyncFor


class State(Enum):
    """Whether an error on this path has been handled since the last back-off."""

    CALM = 0
    FAILED = 1


States = frozenset[State]
NOWHERE: States = frozenset()
CALM: States = frozenset({State.CALM})
FAILED: States = frozenset({State.FAILED})


class Exits(NamedTuple):
    """Path states at the end of a block, by the way the block ends. Paths that raise are dropped."""

    falls: States = NOWHERE
    continues: States = NOWHERE
    breaks: States = NOWHERE
    returns: States = NOWHERE

    def __or__(self, other: Exits) -> Exits:
        return Exits(*(mine | theirs for mine, theirs in zip(self, other, strict=True)))


class Finding(NamedTuple):
    function: str
    handler: str
    """The handled errors, e.g. `except (OSError, TimeoutError)`."""
    line: int


class PathFollower:
    """Follows the paths through a function. Only `watched` starts an error, or every handler if
    `watched` is None.
    """

    def __init__(self, watched: ast.AST | None, helpers: frozenset[str]) -> None:
        self.watched = watched
        self.helpers = helpers

    def states_after_handler(self, handler: ast.AST) -> States:
        return FAILED if self.watched is None or handler is self.watched else CALM

    def block(self, statements: Iterable[ast.stmt], states: States) -> Exits:
        ends = Exits()
        for statement in statements:
            if not states:
                break
            found = self.statement(statement, states)
            states = found.falls
            ends |= found._replace(falls=NOWHERE)
        return ends._replace(falls=states)

    def statement(self, node: ast.stmt, states: States) -> Exits:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return Exits(falls=states)
            case ast.Raise():
                return Exits()
            case ast.Break():
                return Exits(breaks=states)
            case ast.Continue():
                return Exits(continues=states)
            case ast.Return():
                return Exits(returns=self.after(node.value, states))
            case ast.If():
                states = self.after(node.test, states)
                return self.block(node.body, states) | self.block(node.orelse, states)
            case ast.Match():
                branches = (self.block(case.body, states) for case in node.cases)
                ends = Exits(falls=states)
                for branch in branches:
                    ends |= branch
                return ends
            case ast.While() | ast.For() | ast.AsyncFor():
                return self.loop(node, states)
            case ast.With() | ast.AsyncWith():
                ends = self.block(node.body, states)
                if suppresses(node):
                    ends |= Exits(falls=self.states_after_handler(node))
                return ends
            case ast.Try() | ast.TryStar():
                return self.attempt(node, states)
            case _:
                return Exits(falls=self.after(node, states))

    def loop(self, node: LOOP, states: States) -> Exits:
        at_head = states
        ends = Exits()
        while True:
            if isinstance(node, ast.While):
                at_head = self.after(node.test, at_head)
            ends = self.block(node.body, at_head)
            again = at_head | ends.falls | ends.continues
            if again == at_head:
                break
            at_head = again
        is_endless = isinstance(node, ast.While) and is_true(node.test)
        done = self.block(node.orelse, NOWHERE if is_endless else at_head)
        return Exits(falls=ends.breaks, returns=ends.returns) | done

    def attempt(self, node: ast.Try | ast.TryStar, states: States) -> Exits:
        body = self.block(node.body, states)
        ends = body._replace(falls=NOWHERE) | self.block(node.orelse, body.falls)
        for handler in node.handlers:
            ends |= self.block(handler.body, self.states_after_handler(handler))
        if not node.finalbody:
            return ends
        after = [self.block(node.finalbody, each) for each in ends]
        return Exits(*(each.falls for each in after))

    def after(self, node: ast.AST | None, states: States) -> States:
        return CALM if states and node is not None and backs_off(node, self.helpers) else states


def backs_off(node: ast.AST, helpers: frozenset[str]) -> bool:
    for each in walk_same_scope(node):
        if isinstance(each, ast.Await) and is_backoff_call(each.value, "wait"):
            return True
        if isinstance(each, ast.Call):
            arguments = [*each.args, *(keyword.value for keyword in each.keywords)]
            if any(is_backoff_call(argument, "next_s") for argument in arguments):
                return True
            if is_module_function(each.func) and last_name(each.func) in helpers:
                return True
    return False


def is_backoff_call(node: ast.AST, method: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == method
        and last_name(node.func.value).endswith("backoff")
    )


def is_module_function(function: ast.expr) -> bool:
    """True for `name(...)` and `self.name(...)`, which are most likely defined in this module."""
    return isinstance(function, ast.Name) or (
        isinstance(function, ast.Attribute) and last_name(function.value) == "self"
    )


def last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def suppresses(node: ast.With | ast.AsyncWith) -> bool:
    return any(
        isinstance(item.context_expr, ast.Call) and last_name(item.context_expr.func) == "suppress"
        for item in node.items
    )


def is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and bool(node.value)


def walk_same_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the node and its descendants, without the bodies of nested functions and classes."""
    yield node
    if not isinstance(node, FUNCTION | ast.Lambda | ast.ClassDef):
        for child in ast.iter_child_nodes(node):
            yield from walk_same_scope(child)


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, FUNCTION]]:
    for child in ast.iter_child_nodes(tree):
        name = prefix
        if isinstance(child, FUNCTION | ast.ClassDef):
            name = f"{prefix}.{child.name}" if prefix else child.name
        if isinstance(child, FUNCTION):
            yield name, child
        yield from functions(child, name)


def backoff_helpers(tree: ast.Module) -> frozenset[str]:
    """Return the names of the functions that back off on every path on which they return."""
    return frozenset(function.name for _, function in functions(tree) if always_backs_off(function))


def always_backs_off(function: FUNCTION) -> bool:
    ends = PathFollower(None, frozenset()).block(function.body, FAILED)
    states = ends.falls | ends.returns
    return bool(states) and State.FAILED not in states


def is_retry_loop(node: ast.AST) -> bool:
    if isinstance(node, ast.For):
        return isinstance(node.iter, ast.Call) and last_name(node.iter.func) == "range"
    return isinstance(node, ast.While)


def handlers_in(loop: ast.AST) -> Iterator[HANDLER]:
    for node in walk_same_scope(loop):
        if isinstance(node, ast.ExceptHandler) or (
            isinstance(node, ast.With | ast.AsyncWith) and suppresses(node)
        ):
            yield node


def label_of(handler: HANDLER) -> str:
    if isinstance(handler, ast.ExceptHandler):
        return f"except {ast.unparse(handler.type)}" if handler.type is not None else "except"
    return f"with {', '.join(ast.unparse(item) for item in handler.items)}"


def loops_without_backoff(source: str) -> list[Finding]:
    """Return the handlers of retry loops after which the loop may continue without a back-off."""
    tree = ast.parse(source)
    helpers = backoff_helpers(tree)
    found: dict[Finding, None] = {}
    for name, function in functions(tree):
        for statement in function.body:
            for loop in walk_same_scope(statement):
                if not is_retry_loop(loop):
                    continue
                assert isinstance(loop, LOOP)
                for handler in handlers_in(loop):
                    ends = PathFollower(handler, helpers).block(loop.body, CALM)
                    if State.FAILED in ends.falls | ends.continues:
                        found[Finding(name, label_of(handler), handler.lineno)] = None
    return list(found)
