"""What `planted_runs` plants: defects of real arms of the reference model, and sound arms beside them."""

from __future__ import annotations

from functools import partial

from qualgate.records import TWIN, QuantizeRecipe
from tests.verification.verdicts.plantings.folder_edits import (
    added_shifted,
    ids_swapped,
    json_changed,
    noised,
    one_not_finite,
    rows_swapped,
    scaled,
    text_replaced,
    two_shards,
)
from tests.verification.verdicts.plantings.mutant import ANSWERS, CALLS, KV, PLAIN, Mutant, integer
from tests.verification.verdicts.plantings.wrong_arithmetic import (
    first_group_tripled,
    kept,
    laid_out,
    last_segment_lost,
    nibbles_swapped,
    outputs_scaled,
    outputs_shifted,
    parts_of,
    rows_shifted,
    slots_off_by_one,
    undrafted,
    within,
)
from tests.verification.verdicts.plantings.wrong_drafts import (
    accepting,
    all_accepted,
    losing_the_first,
    one_too_many,
    unless_sure,
)
from tests.verification.verdicts.plantings.wrong_workers import (
    answers_of,
    ending_at,
    fenced,
    other_cases,
    other_words,
    out_of_memory,
    rewritten,
    short_budget,
    stale_artifact,
    worker_dies,
)

_recipe = partial(Mutant, cause="recipe")
_template = partial(Mutant, cause="template", broken=True)
_kernels = partial(Mutant, cause="kernel", witness=TWIN)
_kv = partial(Mutant, cause="KV", witness=KV)
_speculation = partial(Mutant, cause="speculation", broken=True, witness=PLAIN, serve_witness=undrafted)
_truncation = partial(Mutant, cause="truncation")
_infrastructure = partial(Mutant, cause="infrastructure", broken=True)
_parser = partial(Mutant, cause="parser", sets=CALLS)
_COLON, _COMMA, _OPEN = 286, 544, 437  # the reference model's tokens `":`, `,"` and `{"`

DEFECTS: tuple[Mutant, ...] = (
    _recipe(what="layer 0's down_proj zeroed", edit=scaled("0.mlp.down_proj", 0.0)),
    _recipe(what="layer 1's o_proj zeroed", edit=scaled("1.self_attn.o_proj", 0.0)),
    _recipe(what="layer 1's q_proj x 4", edit=scaled("1.self_attn.q_proj", 4.0)),
    _recipe(what="layer 2's v_proj x -2", edit=scaled("2.self_attn.v_proj", -2.0)),
    _recipe(what="layer 0's gate_proj noised", edit=noised("0.mlp.gate_proj", 3.0, 1)),
    _recipe(what="layer 5's down_proj noised", edit=noised("5.mlp.down_proj", 3.0, 2)),
    _recipe(what="layer 0's o_proj x 6", edit=scaled("0.self_attn.o_proj", 6.0)),
    _recipe(what="layer 2's o_proj noised", edit=noised("2.self_attn.o_proj", 3.0, 3)),
    _recipe(what="int2 g32", recipe=integer(2, 32), witness=TWIN),
    _recipe(what="int2 g64", recipe=integer(2, 64), witness=TWIN),
    _recipe(what="layer 0's down_proj zeroed, tool calls", edit=scaled("0.mlp.down_proj", 0.0), sets=CALLS),
    _recipe(what="layer 1's o_proj noised, tool calls", edit=noised("1.self_attn.o_proj", 2.0, 4), sets=CALLS),
    _kernels(what="a scale, int8", recipe=integer(8, 0), serve=laid_out(3, outputs_scaled(2, 2.0))),
    _kernels(what="nibbles swapped, int4", recipe=integer(4, 32), serve=laid_out(6, nibbles_swapped)),
    _kernels(what="half of K lost, int4", recipe=integer(4, 32), serve=laid_out(1, last_segment_lost)),
    _kernels(what="outputs shifted, int8", recipe=integer(8, 64), serve=laid_out(10, outputs_shifted)),
    _kernels(what="rows shifted, int8", recipe=integer(8, 32), serve=rows_shifted(8)),
    _kernels(what="a group's scale, int4", recipe=integer(4, 64), serve=laid_out(2, first_group_tripled)),
    _kv(what="keys x 2", serve=within(lambda: kept(lambda k, v: (2.0 * k, v)), kind="packed")),
    _kv(what="values x 0.4", serve=within(lambda: kept(lambda k, v: (k, 0.4 * v)), kind="padded")),
    _kv(
        what="slots off by one",
        serve=within(slots_off_by_one, drafted=False, kind="padded"),
        serve_witness=undrafted,
    ),
    _kv(what="heads of keys shifted", serve=within(lambda: kept(lambda k, v: (k.roll(1, 1), v)), kind="packed")),
    _speculation(what="an accepted token lost", serve=within(losing_the_first)),
    _speculation(
        what="one token too many",
        edit=noised("1.self_attn.o_proj", 3.0, 5),
        serve=within(lambda: accepting(one_too_many)),
    ),
    _speculation(
        what="all accepted, broken weights",
        edit=scaled("0.mlp.down_proj", 0.0),
        serve=within(lambda: accepting(all_accepted)),
    ),
    _speculation(
        what="accepted unless another token leads clearly",
        edit=noised("5.mlp.down_proj", 3.0, 6),
        serve=within(lambda: accepting(unless_sure), kind="padded"),
    ),
    _template(what="another role marker", edit=text_replaced("chat_template.jinja", "|>assistant", "|>model")),
    _template(
        what="no generation prompt",
        edit=text_replaced("chat_template.jinja", "{%- if add_generation_prompt %}", "{%- if false %}"),
    ),
    _template(
        what="a beginning-of-text token",
        edit=text_replaced("chat_template.jinja", "{%- if tools %}", "{{- '<|endoftext|>' }}{%- if tools %}"),
    ),
    _template(
        what="a system prompt of its own",
        edit=text_replaced(
            "chat_template.jinja", "{%- if tools %}", "{{- '<|im_start|>system\\nHi<|im_end|>\\n' }}{%- if tools %}"
        ),
    ),
    _template(
        what="a space behind the message", edit=text_replaced("chat_template.jinja", "content }}<", "content }} <")
    ),
    _template(
        what="every message a tool's",
        edit=text_replaced("chat_template.jinja", "{{ message.role }}", "tool"),
    ),
    _template(what="two letters' ids swapped", edit=json_changed("tokenizer.json", ids_swapped("a", "e"))),
    _template(what="added tokens' ids shifted", edit=json_changed("tokenizer.json", added_shifted)),
    _template(
        what="digits in groups",
        edit=text_replaced("tokenizer.json", '"individual_digits": true', '"individual_digits": false'),
    ),
    _template(
        what="a space before the text",
        edit=text_replaced("tokenizer.json", '"add_prefix_space": false', '"add_prefix_space": true'),
    ),
    _truncation(
        what="a colon ends, in its config",
        edit=json_changed("generation_config.json", lambda c: c.update(eos_token_id=[2, _COLON])),
        broken=True,
    ),
    _truncation(
        what="a comma ends, in its config",
        edit=json_changed("generation_config.json", lambda c: c.update(eos_token_id=[2, _COMMA])),
        broken=True,
    ),
    _truncation(what="nothing ends an answer", serve=ending_at()),
    _truncation(what="the next token's id ends", serve=ending_at(3)),
    _truncation(what="a comma ends", serve=ending_at(2, _COMMA)),
    _truncation(what="a brace ends", serve=ending_at(2, _OPEN)),
    _truncation(what="0.3 of the budget", serve=short_budget(0.3)),
    _truncation(what="0.5 of the budget", serve=short_budget(0.5)),
    _truncation(what="0.7 of the budget", serve=short_budget(0.7)),
    _truncation(what="0.9 of the budget", serve=short_budget(0.9)),
    _infrastructure(what="answers of a broken model", serve=answers_of(scaled("0.mlp.down_proj", 0.0))),
    _infrastructure(what="answers of another model", serve=answers_of(noised("1.self_attn.o_proj", 3.0, 7))),
    _infrastructure(what="another set's artifact", serve=stale_artifact(rewritten(other_cases))),
    _infrastructure(what="an older baseline's artifact", serve=stale_artifact(rewritten(other_words))),
    _infrastructure(what="a worker dies", serve=worker_dies),
    _infrastructure(what="out of memory", serve=out_of_memory),
    _infrastructure(what="a weight is NaN", edit=one_not_finite("3.self_attn.v_proj", float("nan"))),
    _infrastructure(what="a weight is infinite", edit=one_not_finite("1.mlp.down_proj", float("inf"))),
    _parser(what="calls between tab and return", edit=rows_swapped((766, 200), (767, 204))),
    _parser(what="calls between semicolons", edit=rows_swapped((766, 29), (767, 202))),
    _parser(what="calls between tabs", edit=rows_swapped((766, 200), (767, 203))),
    _parser(what="JSON in a fence that says so", serve=fenced("```json\n", "\n```"), sets=ANSWERS),
    _parser(what="JSON in a fence", serve=fenced("```\n", "\n```"), sets=ANSWERS),
)

_PLACES = ("0.mlp.up_proj", "1.self_attn.o_proj", "2.mlp.down_proj", "3.self_attn.q_proj", "4.mlp.gate_proj",
           "5.self_attn.v_proj")  # fmt: skip
SOUND: tuple[Mutant, ...] = (
    Mutant(what="the same"),
    Mutant(what="every token decoded", serve=undrafted),
    *(Mutant(what=f"parts of {size}", serve=within(parts_of(size))) for size in (256, 512, 1024, 2048)),
    *(
        Mutant(what=f"parts of {size}, decoded", serve=within(parts_of(size), drafted=False, kind="padded"))
        for size in (256, 512, 1024, 2048)
    ),
    *(Mutant(what=f"held in {dtype}", dtype=dtype) for dtype in ("float32", "float16")),
    *(Mutant(what=f"int8 g{group}", recipe=integer(8, group)) for group in (0, 32, 64, 128)),
    *(Mutant(what=f"int8 g{group}, asymmetric", recipe=integer(8, group, symmetric=False)) for group in (0, 64)),
    *(Mutant(what=f"int8, clip {clip}", recipe=integer(8, 0, clip=clip)) for clip in ("mse", "percentile")),
    Mutant(what="fp8", recipe=QuantizeRecipe(method="fp8", group_size=0)),
    Mutant(what="fp8 a tensor", recipe=QuantizeRecipe(method="fp8", group_size=0, granularity="tensor")),
    Mutant(what="mxfp8", recipe=QuantizeRecipe(method="mxfp8", group_size=32)),
    Mutant(what="mxfp8 rounded", recipe=QuantizeRecipe(method="mxfp8", group_size=32, exponent="rounded")),
    Mutant(what="int4 g32", recipe=integer(4, 32)),
    *(
        Mutant(what=f"{place} noised by {sigma:g}", edit=noised(place, sigma, 10 + index))
        for index, place in enumerate(_PLACES)
        for sigma in (0.003, 0.01)
    ),
    *(
        Mutant(what=f"{place} x {factor:g}", edit=scaled(place, factor))
        for place in _PLACES[:5]
        for factor in (0.99, 1.01)
    ),
    Mutant(
        what="padding on the right",
        edit=json_changed("tokenizer_config.json", lambda c: c.update(padding_side="right", model_max_length=512)),
    ),
    Mutant(what="another note in the config", edit=json_changed("config.json", lambda c: c.update(pretraining_tp=2))),
    Mutant(what="two shards", edit=two_shards),
    Mutant(what="the same, tool calls", sets=CALLS),
    Mutant(what="int8, tool calls", recipe=integer(8, 0), sets=CALLS),
    Mutant(what="mxfp8, tool calls", recipe=QuantizeRecipe(method="mxfp8", group_size=32), sets=CALLS),
)
