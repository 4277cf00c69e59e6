"""Stage 2: the arbiter learns from whole decodings of its own, by group-relative policy optimisation (2402.03300).

Under `torchrun` every process decodes a share of a step's problems, and gradients are added up.
"""

from __future__ import annotations

import copy
import json
import random
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import gather_object
from attrs import asdict, frozen

from draftmux.errors import RequestError
from draftmux.training.checkpoints import resume, save
from draftmux.verifiers.cospec.grpo import decided, learned_from, minibatches, teaching
from draftmux.verifiers.cospec.monitors import of_answers, of_rollouts
from draftmux.verifiers.cospec.policy import divergence, entropy, loss_of
from draftmux.verifiers.cospec.problems import solves
from draftmux.verifiers.cospec.rollouts import refusing, roll_out, watching

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from draftmux.protocols import Task
    from draftmux.verifiers.cospec.grpo import Decided, Group, Scored
    from draftmux.verifiers.cospec.mining import Rig
    from draftmux.verifiers.cospec.network import Network
    from draftmux.verifiers.cospec.new_network import Studied
    from draftmux.verifiers.cospec.problems import Problem
    from draftmux.verifiers.cospec.recipe import ArbiterRecipe, Objective

STEPS, BEST = "steps.jsonl", "best"


@frozen(eq=False)
class Setup:
    """An arbiter, what decodes, the task that says what is right, and who may know how it goes."""

    rig: Rig
    arbiter: Studied
    task: Task
    report: Callable[[int, dict[str, Any]], None]
    about: dict[str, Any]  # what makes a state of training this run's

    @property
    def layout(self) -> tuple[int, int]:
        """Window and separator."""
        return self.arbiter.about.window, self.arbiter.about.separator

    def solved(self, problems: Sequence[Problem], threshold: float | None = None) -> list[bool]:
        """Which problems are solved with the arbiter at a threshold; without one by the target alone. Every process has
        decoded a share."""
        state = PartialState()
        deciding = refusing(self.rig.parts) if threshold is None else self.arbiter.arbitration(threshold)
        own = list(problems)[state.process_index :: state.num_processes]
        rig, parts = self.rig, watching(self.rig.parts, deciding)[0]
        results = roll_out(parts, rig.tokenizer, [rig.ask(p.key, p) for p in own], rig.batch)
        right = {p.key: solves(self.task, rig.text(results[p.key].tokens), p) for p in own}
        everyone = dict(pair for part in gather_object([right]) for pair in part.items())
        return [everyone[problem.key] for problem in problems]


@frozen(eq=False)
class Stage:
    """Stage 2 at work. `networks` are the policy and the reference; `labels` gives figures of held-out labels."""

    setup: Setup
    recipe: ArbiterRecipe
    networks: tuple[Network, Network]
    group: Group
    objective: Objective
    accelerator: Accelerator
    labels: Callable[[], dict[str, Any]]

    @classmethod
    def of(
        cls, setup: Setup, recipe: ArbiterRecipe, group: Group, objective: Objective, labels: Callable[[], Any]
    ) -> Stage:
        """With the policy as it is now for reference; weights that do not learn are shared."""
        network = setup.arbiter.network
        frozen_ones = {id(p): p for p in network.parameters() if not p.requires_grad}
        reference: Network = copy.deepcopy(network, frozen_ones)
        network.eval(), reference.eval()
        accelerator = Accelerator(mixed_precision=recipe.precision)
        return cls(setup, recipe, (network, reference), group, objective, accelerator, labels)

    @property
    def trained(self) -> list[torch.nn.Parameter]:
        """What learns."""
        return [parameter for parameter in self.networks[0].parameters() if parameter.requires_grad]

    def run(self, learn: Sequence[Problem], held: Sequence[Problem], folder: Path) -> list[dict[str, Any]]:
        """All looks at held-out problems, one every some steps; it goes on where it was. The policy is then that of the
        best look."""
        network, recipe = self.networks[0], self.recipe
        optimizer = torch.optim.AdamW(self.trained, lr=recipe.rate, weight_decay=0.0)
        (folder / BEST).mkdir(parents=True, exist_ok=True)
        progress = resume(folder, network, [optimizer], self.about)
        looks: list[dict[str, Any]] = progress.get("looks", [])
        rows = read_steps(folder / STEPS, progress.get("step", 0))
        plain = self.setup.solved(held)
        for number in range(progress.get("step", 0), recipe.steps):
            if stopped(looks, recipe.patience):
                break
            told = self.step(list(learn), number, optimizer)
            rows.append({"step": number + 1, **told})
            if (number + 1) % recipe.every == 0 or number + 1 == recipe.steps:
                found = of_answers(self.setup.solved(held, 0.5), plain)
                looks.append({**told, "step": number + 1, **found, **self.labels()})
                if self.accelerator.is_main_process:
                    write_steps(folder / STEPS, rows)
                    kept = {"step": number + 1, "looks": looks, **self.about}
                    if best(looks) is looks[-1]:
                        save(folder / BEST, network, [], kept)
                    save(folder, network, [optimizer], kept)
                    self.setup.report(number + 1, looks[-1])
        self.accelerator.wait_for_everyone()
        if looks and not resume(folder / BEST, network, [], self.about):
            raise RequestError(f"{folder / BEST} is gone, the best state of this run; remove {folder} to begin anew")
        return looks

    @property
    def about(self) -> dict[str, Any]:
        """What makes a state this run's."""
        values = {"recipe": self.recipe.kept, "reward": asdict(self.group.reward), "objective": asdict(self.objective)}
        return {**values, **self.setup.about}

    def step(self, learn: list[Problem], number: int, optimizer: torch.optim.Optimizer) -> dict[str, float]:
        """Rollouts of some problems, the same in every run, and one update; figures of both, of several processes the
        mean of theirs."""
        recipe, setup = self.recipe, self.setup
        exploring = setup.arbiter.arbitration(temperature=self.objective.temperature)
        seed = recipe.seed * 1_000_003 + number

        def play(problems: Sequence[Problem]) -> list[Scored]:
            return self.group.play(setup.rig, problems, setup.task, exploring, seed)

        drawn, rollouts = teaching(play, *self._drawn(learn, number), recipe.group, recipe.resample)
        blocks, share = decided(rollouts, self.objective.mean), self._share(rollouts)
        for _ in range(recipe.updates):
            learned = self.update(blocks, share, optimizer)
        told = of_rollouts(drawn, self.group, setup.rig.parts.backend.eos_ids) | learned
        anew = sum(first is not last for first, last in zip(drawn, rollouts, strict=True))
        told["groups_anew"] = anew / max(1, len(drawn))
        everyone = gather_object([(len(rollouts), told)])
        total = sum(count for count, _ in everyone)
        return {name: sum(count * each[name] for count, each in everyone) / total for name in told}

    def _drawn(self, learn: list[Problem], number: int) -> tuple[list[Problem], list[Problem]]:
        """This process's share of a step's problems, and of those that may take their places."""
        rng, state = random.Random(f"{self.recipe.seed} {number}"), self.accelerator
        chosen = rng.sample(learn, min(self.recipe.chosen, len(learn)))
        taken = {problem.key for problem in chosen}
        order = rng.sample(learn, len(learn)) if self.recipe.resample else []
        others = [problem for problem in order if problem.key not in taken]
        index, shares = state.process_index, state.num_processes
        return chosen[index::shares], others[index::shares]

    def _share(self, rollouts: Sequence[Scored]) -> float:
        """What this process's mean counts in that of all."""
        dapo = self.objective.mean == "dapo"
        own = float(sum(map(learned_from, rollouts)) if dapo else len(rollouts))
        return own / max(1.0, float(sum(gather_object([own]))))

    def update(self, blocks: Sequence[Decided], share: float, optimizer: torch.optim.Optimizer) -> dict[str, float]:
        """One step of the optimizer; figures of it."""
        state, network, heat = self.accelerator, self.networks[0], self.objective.temperature
        optimizer.zero_grad(set_to_none=False)
        loss, drift, spread, count = 0.0, 0.0, 0.0, 0
        for batch in minibatches(blocks, self.networks[1], self.setup.layout, self.recipe.rows, heat):
            with state.autocast():
                logits = batch.logits(network)
            own = loss_of(self.objective, batch.decisions, logits) * share
            state.backward(own)
            with torch.no_grad():
                loss += float(own.detach())
                drift += float(divergence(logits.detach(), batch.decisions.reference, heat).sum())
                spread += float(entropy(logits.detach(), heat).sum())
                count += len(logits)
        loss = sum(gather_object([loss]))
        figures = {"loss": loss, "kl": drift / max(1, count), "entropy": spread / max(1, count)}
        for parameter in self.trained:
            own_grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = state.reduce(own_grad, "sum")
        norm = torch.nn.utils.clip_grad_norm_(self.trained, self.recipe.clip)
        if not bool(norm.isfinite()):
            raise RequestError(
                "the gradient of stage 2 is not finite; lower --rate, or train in float32 (`dtype` of the models)"
            )
        optimizer.step()
        return {**figures, "gradient_norm": float(norm)}


def best(looks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The look with most held-out problems solved; of equal ones the last."""
    return max(reversed(looks), key=lambda look: look["held_right"])


def read_steps(path: Path, through: int) -> list[dict[str, Any]]:
    """Figures of the steps up to one, as they were written."""
    if not path.is_file():
        return []
    try:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        return [row for row in rows if row["step"] <= through]
    except (ValueError, TypeError, KeyError) as error:
        raise RequestError(f"{path} cannot be read: {error!r}; remove it to go on without its curves") from error


def write_steps(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """All of them, at once."""
    part = path.with_suffix(".partial")
    part.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    part.replace(path)


def stopped(looks: Sequence[dict[str, Any]], patience: int) -> bool:
    """Whether the last looks were all worse than the target alone."""
    worse = [look["held_right"] < look["target_right"] for look in looks[-patience:]]
    return len(worse) == patience and all(worse)
