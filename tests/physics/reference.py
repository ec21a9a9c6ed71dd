"""A second opinion: a forward pass of a llama-shaped model, walked kernel by kernel, layer by layer and token by token.

Written from the model's definition, without the book, the ledger or any of their formulas: slow, and plain to read.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Shape:
    """A llama-shaped decoder. ``window`` None is full attention; the family that has windows has no biases."""

    hidden: int
    feed_forward: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    window: int | None
    biased: bool

    def config(self) -> dict[str, object]:
        """The config.json that says the same."""
        return {
            "model_type": "mistral" if self.window else "llama",
            "hidden_size": self.hidden,
            "intermediate_size": self.feed_forward,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab,
            "tie_word_embeddings": self.tied,
            "attention_bias": self.biased,
            "mlp_bias": self.biased,
            "sliding_window": self.window,
            "torch_dtype": "bfloat16",
        }


@dataclass(frozen=True)
class Sequence:
    """One sequence of the step: it processes ``new`` tokens after ``past`` cached ones."""

    new: int
    past: int
    wants_logits: bool
    is_prompt: bool


@dataclass(frozen=True)
class Rates:
    """FLOP/s, exponentials/s and byte/s."""

    matrix: float
    vector: float
    exp: float
    bandwidth: float


@dataclass
class Kernel:
    """One kernel that runs once."""

    matrix: int = 0
    vector: int = 0
    exp: int = 0
    moved: dict[str, float] = field(default_factory=dict)

    def move(self, kind: str, elements: int, size: float = 2) -> None:
        self.moved[kind] = self.moved.get(kind, 0) + elements * size

    def seconds(self, rates: Rates) -> float:
        memory = sum(self.moved.values()) / rates.bandwidth
        return max(self.matrix / rates.matrix, self.vector / rates.vector, self.exp / rates.exp, memory)


@dataclass
class Pass:
    """What a forward pass came to."""

    rates: Rates
    matrix: int = 0
    vector: int = 0
    exp: int = 0
    launches: int = 0
    cache: float = 0
    seconds: float = 0
    moved: dict[str, float] = field(default_factory=dict)

    def run(self, kernel: Kernel) -> None:
        self.matrix += kernel.matrix
        self.vector += kernel.vector
        self.exp += kernel.exp
        self.launches += 1
        self.seconds += kernel.seconds(self.rates)
        for kind, amount in kernel.moved.items():
            self.moved[kind] = self.moved.get(kind, 0) + amount


def forward(shape: Shape, sequences: list[Sequence], rates: Rates, kv_bytes: float) -> Pass:
    """Run one step."""
    done = Pass(rates)
    tokens = sum(sequence.new for sequence in sequences)
    done.run(_embedding(shape, tokens))
    for _ in range(shape.layers):
        _layer(shape, sequences, tokens, done, kv_bytes)
    done.run(_norm(shape, tokens))
    rows = sum(sequence.wants_logits for sequence in sequences)
    if rows:
        done.run(_head(shape, rows))
        done.run(_sampling(shape, rows))
    return done


def _layer(shape: Shape, sequences: list[Sequence], tokens: int, done: Pass, kv_bytes: float) -> None:
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    done.run(_norm(shape, tokens))
    done.run(_linear(tokens, shape.hidden, queries + 2 * keys, biased=shape.biased))
    done.run(_rotation(shape, tokens))
    done.run(_store(shape, sequences, done, kv_bytes))
    for is_prompt in (True, False):
        together = [sequence for sequence in sequences if sequence.is_prompt == is_prompt]
        if together:
            done.run(_attention(shape, together, kv_bytes))
    done.run(_linear(tokens, queries, shape.hidden, biased=shape.biased))
    done.run(_add(shape, tokens))
    done.run(_norm(shape, tokens))
    done.run(_linear(tokens, shape.hidden, 2 * shape.feed_forward, biased=shape.biased))
    done.run(_swiglu(shape, tokens))
    done.run(_linear(tokens, shape.feed_forward, shape.hidden, biased=shape.biased))
    done.run(_add(shape, tokens))


def _linear(tokens: int, inputs: int, outputs: int, *, biased: bool) -> Kernel:
    kernel = Kernel()
    kernel.move("weights", inputs * outputs)
    if biased:
        kernel.move("weights", outputs)
    for _ in range(tokens):
        kernel.move("activations", inputs)
        kernel.move("activations", outputs)
        kernel.matrix += outputs * (inputs + inputs)  # as many multiplications as additions
        if biased:
            kernel.vector += outputs
    return kernel


def _attention(shape: Shape, sequences: list[Sequence], kv_bytes: float) -> Kernel:
    kernel = Kernel()
    for sequence in sequences:
        needed: set[int] = set()
        for position in range(sequence.past, sequence.past + sequence.new):
            first = 0 if shape.window is None else max(0, position - shape.window + 1)
            visible = range(first, position + 1)
            needed.update(visible)
            for _ in visible:
                for _ in range(shape.heads):
                    kernel.matrix += 2 * shape.head_dim  # the score
                    kernel.matrix += 2 * shape.head_dim  # its share of the output
                    kernel.vector += 2 + 1 + 1  # scale and subtract; running maximum; running sum
                    kernel.exp += 1
        for position in needed:
            for _ in ("key", "value"):
                if position < sequence.past:
                    kernel.move("kv_traffic", shape.kv_heads * shape.head_dim, kv_bytes)
        for _ in range(sequence.new):
            for _ in ("key", "value"):
                kernel.move("activations", shape.kv_heads * shape.head_dim)
    return kernel


def _store(shape: Shape, sequences: list[Sequence], done: Pass, kv_bytes: float) -> Kernel:
    kernel = Kernel()
    for sequence in sequences:
        length = sequence.past + sequence.new
        oldest = 0 if shape.window is None else max(0, length - shape.window)
        for position in range(oldest, length):
            for _ in ("key", "value"):
                done.cache += shape.kv_heads * shape.head_dim * kv_bytes
                if position >= sequence.past:
                    kernel.move("activations", shape.kv_heads * shape.head_dim)
                    kernel.move("kv_traffic", shape.kv_heads * shape.head_dim, kv_bytes)
    return kernel


def _norm(shape: Shape, tokens: int) -> Kernel:
    kernel = Kernel()
    kernel.move("weights", shape.hidden)
    for _ in range(tokens):
        kernel.vector += 4 * shape.hidden  # square, sum, scale, weight
        kernel.move("activations", shape.hidden)  # in
        kernel.move("activations", shape.hidden)  # out
    return kernel


def _rotation(shape: Shape, tokens: int) -> Kernel:
    kernel = Kernel()
    for _ in range(tokens):
        for _ in range(shape.heads + shape.kv_heads):
            kernel.vector += (shape.head_dim // 2) * (4 + 2)
            kernel.move("activations", shape.head_dim)
            kernel.move("activations", shape.head_dim)
    return kernel


def _swiglu(shape: Shape, tokens: int) -> Kernel:
    kernel = Kernel()
    for _ in range(tokens):
        kernel.exp += shape.feed_forward
        kernel.vector += (3 + 1) * shape.feed_forward  # compare, add, divide; gate
        for _ in ("gate", "up", "out"):
            kernel.move("activations", shape.feed_forward)
    return kernel


def _add(shape: Shape, tokens: int) -> Kernel:
    kernel = Kernel()
    for _ in range(tokens):
        kernel.vector += shape.hidden
        for _ in ("stream", "block", "sum"):
            kernel.move("activations", shape.hidden)
    return kernel


def _embedding(shape: Shape, tokens: int) -> Kernel:
    kernel = Kernel()
    for row in range(tokens):
        if row < shape.vocab:
            kernel.move("weights", shape.hidden)
        kernel.move("activations", shape.hidden)
    return kernel


def _head(shape: Shape, rows: int) -> Kernel:
    kernel = Kernel()
    kernel.move("weights", shape.hidden * shape.vocab)
    for _ in range(rows):
        kernel.matrix += 2 * shape.hidden * shape.vocab
        kernel.move("activations", shape.hidden)
        kernel.move("logit_traffic", shape.vocab)
    return kernel


def _sampling(shape: Shape, rows: int) -> Kernel:
    kernel = Kernel()
    for _ in range(rows):
        kernel.vector += 3 * shape.vocab  # maximum, subtract, sum
        kernel.exp += shape.vocab
        kernel.move("logit_traffic", shape.vocab)
    return kernel
