"""What `qualgate draft train` made, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qualgate.formatting import counted, size_text

if TYPE_CHECKING:
    from qualgate.engine.draft_heads.making import TrainedHead


def head_lines(made: TrainedHead) -> list[str]:
    """Where it is, what it came to on prompts that were held out, and how it is named in a gate file."""
    found, lines = made.held_out, list[str]()
    lines.append(
        f"{made.folder}: {made.layout} head of {made.target}, {size_text(made.nbytes)}, learned on "
        f"{counted(made.learned_on, 'answer')} in {made.seconds:.0f} s (last loss {made.loss:.3f})"
    )
    if made.left_out:
        lines.append(f"  {counted(made.left_out, 'answer')} left out: the states of those before fill the memory")
    lines.append(f"On {counted(found.prompts, 'prompt')} held out, {found.tokens} tokens a draft:")
    if found.acceptance is None or found.tokens_per_pass is None:
        lines.append("  nothing was drafted: answers of one token leave no room for it")
    else:
        places = ", ".join(f"{share:.0%}" for share in found.positions)
        lines += [
            f"  tokens a pass     {found.tokens_per_pass:.2f}, the target's own included",
            f"  accepted          {found.acceptance:.0%} of what was proposed; by place {places}",
            f"  cost              a drafted token takes {made.draft_cost:.2f} of a step of the target",
        ]
        lines += [f"  {task:<16}  {value:.2f} tokens a pass" for task, value in found.by_task.items()]
    said = "are those without drafts, token for token" if found.same else "DIFFER from those without drafts: a defect"
    lines.append(f"  answers           {said}")
    return [*lines, f"In a gate file: speculation: {{draft: {{head: {made.folder}}}, tokens: {found.tokens}}}"]
