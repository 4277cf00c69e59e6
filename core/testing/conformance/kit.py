"""The lists of checks, one for each kind of plugin, and the functions that run them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from draftmux.testing.conformance import (
    backend_checks,
    constraint_checks,
    drafter_law,
    drafter_rules,
    drafter_text,
    router_checks,
    shared,
    verifier_checks,
    verifier_extremes,
    verifier_law,
)
from draftmux.testing.conformance.report import Checks, ConformanceError, Report, findings
from draftmux.testing.conformance.subject import Setting, Subject, build

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DRAFTER = Checks.of(
    "drafter",
    (
        shared.protocol,
        shared.declared_needs,
        drafter_rules.legal_trees,
        drafter_rules.budgets,
        drafter_text.greedy_identity,
        drafter_text.seeded_identity,
        drafter_text.hostile_prompts,
        shared.own_state,
        shared.repeatable,
        drafter_rules.catches_up,
        drafter_rules.rejected_drafts_leave_no_trace,
        drafter_rules.lazy_observe,
        drafter_law.non_anticipation,
        drafter_law.fresh_noise,
        drafter_law.independent_draws,
        shared.reads_only,
        shared.no_pickle,
        drafter_rules.long_context,
        drafter_text.engages,
    ),
)
ROUTER = Checks.of(
    "router",
    (
        shared.protocol,
        shared.declared_needs,
        router_checks.legal_choices,
        router_checks.greedy_identity,
        router_checks.seeded_identity,
        router_checks.hostile_prompts,
        shared.own_state,
        shared.repeatable,
        router_checks.keeps_its_hands_off,
        shared.reads_only,
        shared.no_pickle,
        router_checks.engages,
    ),
)
VERIFIER = Checks.of(
    "verifier",
    (
        verifier_checks.protocol,
        verifier_checks.declarations,
        verifier_checks.legal_paths,
        verifier_checks.greedy_identity,
        verifier_checks.seeded_identity,
        verifier_law.exact_law,
        verifier_extremes.extreme_laws,
        verifier_law.lossy_differs,
        verifier_checks.keyed_noise,
        verifier_checks.one_number_a_decision,
        verifier_checks.within_the_draft,
        verifier_checks.reads_only,
        verifier_checks.no_pickle,
    ),
)
BACKEND = Checks.of(
    "backend",
    (
        backend_checks.protocol,
        backend_checks.prefill,
        backend_checks.tree_logits,
        backend_checks.accepted_paths,
        backend_checks.cache_length,
        backend_checks.batch_is_alone,
        backend_checks.rows_come_and_go,
        backend_checks.scores_again,
        backend_checks.taps,
        backend_checks.max_length,
        backend_checks.cost,
    ),
)
CONSTRAINT = Checks.of(
    "constraint",
    (
        constraint_checks.protocol,
        constraint_checks.masks,
        constraint_checks.moves_fit_masks,
        constraint_checks.never_stuck,
        constraint_checks.states_never_change,
        constraint_checks.begins_anew,
        constraint_checks.constrained_identity,
    ),
)
CHECKS = {checks.kind: checks for checks in (DRAFTER, ROUTER, VERIFIER, BACKEND, CONSTRAINT)}


def check_drafter(
    plugin: Any,
    *,
    only: Iterable[str] | None = None,
    skip: Iterable[str] = (),
    setting: Setting | None = None,
    **options: Any,
) -> Report:
    """Check a drafter: an instance, a class or a registered name; `options` are read as a pipeline file's would be.

    `only` and `skip` name checks; `setting` gives models, drafters or a target that the kit cannot make itself. Raises
    ConformanceError with every check that failed, PluginError when the plugin cannot be built; warns of what is allowed
    and hardly meant.
    """
    return run(plan("drafter", plugin, options, setting), only, skip)


def check_router(
    plugin: Any,
    *,
    only: Iterable[str] | None = None,
    skip: Iterable[str] = (),
    setting: Setting | None = None,
    **options: Any,
) -> Report:
    """Check a router, as `check_drafter` does a drafter."""
    return run(plan("router", plugin, options, setting), only, skip)


def check_verifier(
    plugin: Any,
    *,
    only: Iterable[str] | None = None,
    skip: Iterable[str] = (),
    setting: Setting | None = None,
    **options: Any,
) -> Report:
    """Check a verifier at the level it declares: pathwise, lossless or lossy."""
    return run(plan("verifier", plugin, options, setting), only, skip)


def check_backend(
    plugin: Any,
    *,
    only: Iterable[str] | None = None,
    skip: Iterable[str] = (),
    setting: Setting | None = None,
    **options: Any,
) -> Report:
    """Check a backend against its own plain decoding. `plugin` may also be a bound one, a target.

    A backend that takes a model is bound to a tiny Llama in float64 unless `setting.models` has a `target`.
    """
    return run(plan("backend", plugin, options, setting), only, skip)


def check_constraint(
    plugin: Any,
    *,
    only: Iterable[str] | None = None,
    skip: Iterable[str] = (),
    setting: Setting | None = None,
    **options: Any,
) -> Report:
    """Check a constraint over a small byte-level tokenizer, or over the tokenizer of `setting.target`."""
    return run(plan("constraint", plugin, options, setting), only, skip)


def plan(kind: str, plugin: Any, options: Mapping[str, Any], setting: Setting | None = None) -> Subject:
    """The plugin as its checks take it; PluginError when it cannot be built."""
    name, built = build(kind, plugin, options)
    return Subject(kind, name, built, setting or Setting())


def run(subject: Subject, only: Iterable[str] | None = None, skip: Iterable[str] = ()) -> Report:
    """Run the checks; ConformanceError with all that failed."""
    checks = CHECKS[subject.kind].select(only, skip)
    report = Report(subject.kind, subject.name, tuple(findings(checks, subject)))
    if report.failed:
        raise ConformanceError(report)
    report.warn()
    return report
