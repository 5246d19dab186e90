"""What serving needs: pools of states in place, drafts of which some tokens hold, states at any interval, other arrays."""

import logging

import pytest

torch = pytest.importorskip("torch")
linnet = pytest.importorskip("linnet", reason="the package is not built: make build")

from test_ops import call, make, rms  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_gradients")


@pytest.fixture
def without_gradients():
    with torch.no_grad():
        yield


def tokens(op="kda", N=3, T=1, seed=0):
    return {name: t.detach() for name, t in make(op, B=N, T=T, seed=seed).items()}


@pytest.mark.parametrize("op", ["kda", "gated_delta_rule"])
@pytest.mark.parametrize("v_first", [False, True])
def test_a_pool_is_updated_in_place_by_slot(op, v_first):
    x = tokens(op)
    pool = torch.randn(6, 2, *((16, 24) if v_first else (24, 16)))
    before, slots = pool.clone(), torch.tensor([4, -1, 0])
    o, returned = call(op, "fused_recurrent", x, initial_state=pool, inplace_final_state=True,
                       ssm_state_indices=slots.int(), state_v_first=v_first)
    wanted, states = call(op, "fused_recurrent", x, initial_state=before[slots], output_final_state=True,
                          state_v_first=v_first)
    assert returned is pool
    assert torch.equal(o[[0, 2]], wanted[[0, 2]]) and not o[1].any()
    assert torch.equal(pool[[4, 0]], states[[0, 2]])
    assert torch.equal(pool[[1, 2, 3, 5]], before[[1, 2, 3, 5]])


def test_a_pool_without_slots_has_a_row_for_each_sequence():
    x, pool = tokens(T=3), torch.randn(3, 2, 24, 16)
    wanted, states = call("kda", "fused_recurrent", x, initial_state=pool.clone(), output_final_state=True)
    o, _ = call("kda", "fused_recurrent", x, initial_state=pool, inplace_final_state=True)
    assert torch.equal(o, wanted) and torch.equal(pool, states)


def test_states_at_intervals_of_no_tokens():
    for B, T, count in ((1, 0, 0), (2, 0, 0), (0, 70, 2)):
        x = {name: t.detach() for name, t in make("kda", B=B, T=T).items()}
        o, final, states = linnet.chunk_kda(**x, output_final_state=True, return_intermediate_states=True)
        assert o.shape == (B, T, 2, 16) and final.shape == (B, 2, 24, 16) and states.shape == (B, count, 2, 24, 16)
    x = {name: t.detach() for name, t in make("kda", T=0).items()}
    packed = linnet.chunk_kda(**x, cu_seqlens=torch.tensor([0, 0, 0]), return_intermediate_states=8)
    assert packed[2].shape == (1, 0, 2, 24, 16)


def test_a_pool_without_rows_leaves_every_sequence_out():
    for slots in (torch.tensor([-1, -1]), torch.tensor([[-1], [-1]])):
        o, _ = call("kda", "fused_recurrent", tokens(N=2), initial_state=torch.zeros(0, 2, 24, 16),
                    inplace_final_state=True, ssm_state_indices=slots)
        assert o.shape == (2, 1, 2, 16) and not o.any()


def test_a_draft_of_no_tokens_leaves_the_pool_as_it_was():
    pool = torch.randn(5, 2, 24, 16)
    before, options = pool.clone(), {"initial_state": pool, "inplace_final_state": True}
    for x, slots, offsets in ((tokens(N=0, T=2), torch.zeros(0, 2), None), (tokens(N=2, T=0), torch.zeros(2, 1), None),
                              (tokens(N=1, T=0), torch.tensor([[3, 1], [-1, -1]]), torch.tensor([0, 0, 0]))):
        o, _ = call("kda", "fused_recurrent", x, ssm_state_indices=slots.long(), cu_seqlens=offsets, **options)
        assert o.shape == x["v"].shape and torch.equal(pool, before)


@pytest.mark.parametrize("packed", [False, True])
def test_a_draft_goes_on_from_the_tokens_that_were_accepted(packed):
    """Two steps of speculative decoding equal plain decoding of the accepted tokens."""
    N, S = 3, 4
    first, second = tokens(N=N, T=S), tokens(N=N, T=S, seed=1)
    pool = torch.randn(20, 2, 24, 16)
    before = pool.clone()
    slots = torch.tensor([[3, 7, 1, 9], [0, 2, 4, 6], [10, 11, 12, 13]])
    accepted = torch.tensor([1, 4, 2])
    options = {"initial_state": pool, "inplace_final_state": True, "ssm_state_indices": slots}

    def run(x, **more):
        if not packed:
            return call("kda", "fused_recurrent", x, **options, **more)[0]
        flat = {name: t.flatten(0, 1).unsqueeze(0) for name, t in x.items()}
        o, _ = call("kda", "fused_recurrent", flat, **options, **more, cu_seqlens=torch.arange(N + 1) * S)
        return o.unflatten(1, (N, S)).squeeze(0)

    run(first, num_accepted_tokens=torch.ones(N, dtype=torch.int32))
    o = run(second, num_accepted_tokens=accepted)
    for n in range(N):
        held = {name: torch.cat((first[name][n:n + 1, :accepted[n]], second[name][n:n + 1]), 1) for name in first}
        wanted, state = call("kda", "fused_recurrent", held, initial_state=before[slots[n, :1]], output_final_state=True)
        assert rms(o[n], wanted[0, accepted[n]:]) < 1e-6
        assert rms(pool[slots[n, -1]], state[0]) < 1e-6
    untouched = sorted(set(range(20)) - set(slots.flatten().tolist()))
    assert torch.equal(pool[untouched], before[untouched])


def test_a_sequence_is_left_out_of_a_draft():
    x, pool = tokens(N=2, T=2), torch.randn(4, 2, 24, 16)
    before = pool.clone()
    o, _ = call("kda", "fused_recurrent", x, initial_state=pool, inplace_final_state=True,
                ssm_state_indices=torch.tensor([[-1, -1], [2, 3]]))
    assert not o[0].any() and o[1].any() and torch.equal(pool[:2], before[:2])


@pytest.mark.parametrize("change, error, words", [
    ({"ssm_state_indices": torch.tensor([0, 1, 6])}, ValueError,
     "ssm_state_indices: expected -1 (left out) or a row of state, below 6, got 6 at position 2"),
    ({"ssm_state_indices": torch.tensor([0, 1, 1])}, ValueError, "a row for each sequence of its own"),
    ({"ssm_state_indices": torch.tensor([0, 1])}, ValueError, "ssm_state_indices: expected [N] or [N, S] with N = 3"),
    ({"ssm_state_indices": torch.zeros(3)}, TypeError, "ssm_state_indices: expected int32 or int64"),
    ({"ssm_state_indices": torch.tensor([[0], [1], [6]])}, ValueError, "ssm_state_indices: expected numbers from -1 to 5"),
    ({"ssm_state_indices": torch.tensor([[0], [1], [1]])}, ValueError, "got one twice"),
    ({"ssm_state_indices": torch.tensor([[0], [1], [2]]), "num_accepted_tokens": torch.tensor([1, 2, 1])}, ValueError,
     "num_accepted_tokens: expected numbers from 1 to 1, got 1 to 2"),
    ({"num_accepted_tokens": torch.tensor([1, 1, 1])}, ValueError, "expected ssm_state_indices [N, S] with it"),
    ({"initial_state": None}, TypeError, "initial_state: expected a tensor [P, HV, K, V]"),
    ({"initial_state": torch.zeros(6, 2, 24, 16).bfloat16()}, TypeError, "initial_state: expected float32"),
    ({"initial_state": torch.zeros(3, 2, 24, 32)[..., ::2]}, ValueError, "last axis to be dense"),
    ({}, ValueError, "initial_state: expected f32 [N, HV, K, V] = [3, 2, 24, 16], got f32 [6, 2, 24, 16]"),
], ids=lambda x: None)
def test_a_wrong_pool_is_refused(change, error, words):
    with pytest.raises(error) as caught:
        call("kda", "fused_recurrent", tokens(), **{"initial_state": torch.zeros(6, 2, 24, 16),
                                                    "inplace_final_state": True, **change})
    assert words in str(caught.value)


def test_a_pool_has_no_gradient():
    x = make("kda", B=3, T=1)
    with torch.enable_grad(), pytest.raises(ValueError, match="inplace_final_state: expected tensors without"):
        call("kda", "fused_recurrent", x, initial_state=torch.zeros(3, 2, 24, 16), inplace_final_state=True)


def test_opcheck_of_states_in_place():
    x, pool = tokens(), torch.randn(3, 2, 24, 16)
    torch.library.opcheck(torch.ops.linnet.kda_decode.default,
                          (*x.values(), None, None, pool, torch.tensor([2, 0, 1]), None, None, "pre", 0.0, "plain", False,
                           False, ""))


@pytest.mark.parametrize("N, T, every", [(2, 70, 1), (2, 70, 7), (2, 70, 48), (1, 700, 20)])
def test_states_at_any_interval(N, T, every):
    x = tokens(N=N, T=T)
    o, _, states = call("kda", "chunk", x, return_intermediate_states=every)
    assert states.shape == (N, -(-T // every), 2, 24, 16)
    for at in {1, states.shape[1] - 1}:
        head = {name: t[:, :every * at] for name, t in x.items()}
        assert rms(states[:, at], call("kda", "chunk", head, output_final_state=True)[1]) < 1e-6
    assert rms(o, call("kda", "chunk", x)[0]) < 1e-6


def test_a_copy_is_logged_and_a_dense_tensor_is_not(caplog):
    x = tokens()
    with caplog.at_level(logging.INFO, logger="linnet"):
        call("kda", "chunk", x)
        assert not caplog.records
        call("kda", "chunk", {**x, "k": torch.stack((x["k"], x["k"]), -1)[..., 0]})
    assert [r.getMessage() for r in caplog.records] == [
        "k: float32 [3, 1, 2, 24] is copied, it does not lie as kernels read"]


def test_arrays_of_others():
    numpy = pytest.importorskip("numpy")
    x = tokens(T=20)
    o, _ = call("kda", "chunk", {name: numpy.asarray(t) for name, t in x.items()},
                initial_state=numpy.zeros((3, 2, 24, 16), "float32"))
    assert torch.equal(o, call("kda", "chunk", x)[0])


def test_a_wide_beta_beside_narrow_data_keeps_its_bits():
    x = {name: t.detach() for name, t in make("kda", T=40, dtype=torch.bfloat16).items()}
    x["beta"] = torch.full((1, 40, 2), 0.001953125 + 2**-20)  # has no bfloat16 of its own
    narrow = {**x, "beta": x["beta"].bfloat16()}
    assert not torch.equal(narrow["beta"].float(), x["beta"])
    assert not torch.equal(call("kda", "chunk", x)[0], call("kda", "chunk", narrow)[0])
    wide = {name: t.float() for name, t in x.items()}
    assert rms(call("kda", "chunk", x)[0], call("kda", "chunk", wide)[0]) < 0.005
