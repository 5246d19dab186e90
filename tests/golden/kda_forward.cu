// kda, chunks of 16 tokens. Written by Linnet 0.1.0.
#include "decay.cuh"
#include "gather.cuh"
#include "inverse.cuh"
#include "mma.cuh"
#include "reduce.cuh"
#include "sequence.cuh"
#include "tile.cuh"

using namespace linnet;
extern __shared__ __align__(16) unsigned char shared[];

// A block for every chunk and value head.
LINNET_KERNEL(128, 1) kda_prepare(const Tensor<const bf16> q_tensor,
    const Tensor<const bf16> k_tensor, const Tensor<const float> g_tensor,
    const Tensor<const bf16> beta_tensor, unsigned char* workspace, const Batch batch) {
  using cta = Cta<4>;
  using CxC = Tile<16, 16, Columns<4>>;
  using CxK = Tile<16, 128, Columns<4>>;
  const Chunk chunk = find_chunk<16>(batch, blockIdx.x);
  if (chunk.rows == 0) {
    return;
  }
  unsigned char* const record = workspace + chunk.slot * 13824;
  const SharedTile<float, 16, 128> g(shared + 0);
  load_rows<cta, 16>(g, chunk.at(g_tensor, chunk.head), g_tensor.row_step, chunk.rows, 128);
  float* const beta = reinterpret_cast<float*>(shared + 8704);
  load_vector<cta, 16>(beta, chunk.at(beta_tensor, chunk.head), beta_tensor.row_step, chunk.rows);
  const SharedTile<bf16, 16, 128> k(shared + 8768);
  load_rows<cta, 16>(k, chunk.at(k_tensor, chunk.key_head), k_tensor.row_step, chunk.rows, 128);
  const SharedTile<bf16, 16, 128> q(shared + 13120);
  load_rows<cta, 16>(q, chunk.at(q_tensor, chunk.key_head), q_tensor.row_step, chunk.rows, 128);
  commit_copies();
  wait_for_copies();
  __syncthreads();
  const CxK gate = maximum(load<CxK>(g), -128.f);
  const CxK gamma = cumsum(gate);
  float* const gamma_last = reinterpret_cast<float*>(shared + 0);
  __syncthreads();
  take_row(gamma_last, gamma, 15);
  float* const decay = reinterpret_cast<float*>(shared + 512);
  __syncthreads();
  fill_vector<cta, 128>(decay, [&](int i) { return exponential(gamma_last[i]); });
  __syncthreads();
  store_vector<cta>(in_record<float>(record, 0), 1, decay, 128);
  const CxK e = over_rows<CxK>(beta) * load<CxK>(k);
  const CxK exp_gamma = exponential(gamma);
  const CxK e_in = e * exp_gamma;
  const SharedTile<bf16, 16, 128> e_in_s(shared + 512);
  __syncthreads();
  store(e_in_s, e_in);
  __syncthreads();
  store_block<cta, 128>(in_record<bf16>(record, 512), e_in_s);
  const CxK q_in = load<CxK>(q) * exp_gamma;
  const SharedTile<bf16, 16, 128> q_in_s(shared + 512);
  __syncthreads();
  store(q_in_s, q_in);
  __syncthreads();
  store_block<cta, 128>(in_record<bf16>(record, 9216), q_in_s);
  const SharedTile<float, 16, 128> gamma_s(shared + 17472);
  store(gamma_s, gamma);
  const SharedTile<float, 16, 128> e_s(shared + 26176);
  store(e_s, e);
  const SharedTile<float, 16, 16> A_ek(shared + 512);
  // A_ek_ij = sum_d e_s_id k_jd exp(gamma_s_id - gamma_s_jd), i > j
  const SharedTile<float, 16, 16> A_qk(shared + 2048);
  // A_qk_ij = sum_d q_id k_jd exp(gamma_s_id - gamma_s_jd), i >= j
  __syncthreads();
  decay_dots<cta, Precision::bf16>(gamma_s, gamma_s, score<Triangle::strict_lower>(A_ek, e_s, k),
      score<Triangle::lower>(A_qk, q, k));
  const SharedTile<bf16, 16, 16> A_qk_s(shared + 3584);
  __syncthreads();
  store(A_qk_s, load<CxC>(A_qk));
  __syncthreads();
  store_block<cta, 16>(in_record<bf16>(record, 13312), A_qk_s);
  const CxK k_out = load<CxK>(k) * exponential((over_columns<CxK>(gamma_last) - gamma));
  const SharedTile<bf16, 16, 128> k_out_s(shared + 2048);
  __syncthreads();
  store(k_out_s, k_out);
  __syncthreads();
  store_block<cta, 128>(in_record<bf16>(record, 5120), k_out_s);
  const SharedTile<float, 16, 16> Z(shared + 2048);
  // Z = (I + A_ek)^-1
  __syncthreads();
  inverse_unit_lower<cta, Precision::tf32>(Z, A_ek);
  const SharedTile<bf16, 16, 16> Z_s(shared + 3584);
  __syncthreads();
  store(Z_s, load<CxC>(Z));
  __syncthreads();
  store_block<cta, 16>(in_record<bf16>(record, 4608), Z_s);
}

// A block for every sequence, value head and 64 value channels; value channels lie along the rows of tiles.
LINNET_KERNEL(128, 1) kda_scan(const Tensor<const bf16> v_tensor,
    const Tensor<const bf16> beta_tensor, const float scale,
    const Tensor<const float> initial_state_tensor, const Tensor<bf16> o_tensor,
    const Tensor<float> final_state_tensor, const States states, unsigned char* workspace,
    const Batch batch) {
  using cta = Cta<4>;
  using VxC = Tile<64, 16, Rows<4>>;
  using VxK = Tile<64, 128, Rows<4>>;
  const auto sequence = Sequence<16>::find<64>(batch, blockIdx.x, 2);
  const auto fetch = [&](i64 turn) {
    const Chunk chunk = sequence.chunk(turn);
    unsigned char* const stage = shared + turn % 2 * 17472;
    unsigned char* const record = workspace + chunk.slot * 13824;
    float* const decay = reinterpret_cast<float*>(stage + 0);
    load_vector<cta, 128>(decay, in_record<float>(record, 0), 1, 128);
    float* const beta = reinterpret_cast<float*>(stage + 512);
    load_vector<cta, 16>(beta, chunk.at(beta_tensor, chunk.head), beta_tensor.row_step, chunk.rows);
    const SharedTile<bf16, 16, 64> v(stage + 576);
    load_rows<cta, 16>(v, chunk.at(v_tensor, chunk.head) + sequence.first_value, v_tensor.row_step,
        chunk.rows, 128 - sequence.first_value);
    const SharedTile<bf16, 16, 128> e_in(stage + 2880);
    load_block<cta, 128>(e_in, in_record<bf16>(record, 512), 16);
    const SharedTile<bf16, 16, 16> Z(stage + 7232);
    load_block<cta, 16>(Z, in_record<bf16>(record, 4608), 16);
    const SharedTile<bf16, 16, 128> k_out(stage + 8000);
    load_block<cta, 128>(k_out, in_record<bf16>(record, 5120), 16);
    const SharedTile<bf16, 16, 128> q_in(stage + 12352);
    load_block<cta, 128>(q_in, in_record<bf16>(record, 9216), 16);
    const SharedTile<bf16, 16, 16> A_qk(stage + 16704);
    load_block<cta, 16>(A_qk, in_record<bf16>(record, 13312), 16);
    commit_copies();
  };
  VxK S = load_state<VxK, StateOrder::k_first, 128>(sequence.state(initial_state_tensor),
      sequence.first_value);
  const auto own_states = sequence.own(states);
  for (i64 turn = -1; turn < sequence.chunks(); ++turn) {
    __syncthreads();
    if (turn + 1 < sequence.chunks()) fetch(turn + 1);
    else commit_copies();
    if (turn < 0) continue;
    wait_for_copies<1>();
    __syncthreads();
    const Chunk chunk = sequence.chunk(turn);
    unsigned char* const stage = shared + turn % 2 * 17472;
    float* const decay = reinterpret_cast<float*>(stage + 0);
    float* const beta = reinterpret_cast<float*>(stage + 512);
    const SharedTile<bf16, 16, 64> v(stage + 576);
    const SharedTile<bf16, 16, 128> e_in(stage + 2880);
    const SharedTile<bf16, 16, 16> Z(stage + 7232);
    const SharedTile<bf16, 16, 128> k_out(stage + 8000);
    const SharedTile<bf16, 16, 128> q_in(stage + 12352);
    const SharedTile<bf16, 16, 16> A_qk(stage + 16704);
    store_state<StateOrder::k_first, 128>(own_states.at(turn), S, sequence.first_value);
    const VxC t1 = minus_product<Precision::bf16>(over_columns<VxC>(beta) * load<VxC>(transposed(v)),
        S, transposed(e_in));
    const VxC X = product<VxC, Precision::bf16>(t1, transposed(Z));
    const VxC o = scale * plus_product<Precision::bf16>(product<VxC, Precision::bf16>(S,
        transposed(q_in)), X, transposed(A_qk));
    const SharedTile<bf16, 16, 64> o_s(shared + 34944);
    store(transposed(o_s), o);
    __syncthreads();
    store_rows<cta, 16>(chunk.at(o_tensor, chunk.head) + sequence.first_value, o_tensor.row_step, o_s,
        chunk.rows, 128 - sequence.first_value);
    const VxK S_next = plus_product<Precision::bf16>(over_columns<VxK>(decay) * S, X, k_out);
    S = S_next;
  }
  store_state<StateOrder::k_first, 128>(sequence.state(final_state_tensor), S, sequence.first_value);
}
