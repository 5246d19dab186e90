// kda_backward, chunks of 16 tokens. Written by Linnet 0.1.0.
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
LINNET_KERNEL(128, 1) kda_backward_prepare(const Tensor<const bf16> q_tensor,
    const Tensor<const bf16> k_tensor, const Tensor<const float> g_tensor,
    const Tensor<const bf16> beta_tensor, const float scale, const Tensor<const bf16> do_tensor,
    unsigned char* workspace, const Batch batch) {
  using cta = Cta<4>;
  using CxC = Tile<16, 16, Columns<4>>;
  using CxK = Tile<16, 128, Columns<4>>;
  using CxV = Tile<16, 128, Columns<4>>;
  const Chunk chunk = find_chunk<16>(batch, blockIdx.x);
  if (chunk.rows == 0) {
    return;
  }
  unsigned char* const record = workspace + chunk.slot * 91136;
  const SharedTile<float, 16, 128> g(shared + 0);
  load_rows<cta, 16>(g, chunk.at(g_tensor, chunk.head), g_tensor.row_step, chunk.rows, 128);
  const SharedTile<bf16, 16, 128> q(shared + 8704);
  load_rows<cta, 16>(q, chunk.at(q_tensor, chunk.key_head), q_tensor.row_step, chunk.rows, 128);
  const SharedTile<bf16, 16, 128> k(shared + 13056);
  load_rows<cta, 16>(k, chunk.at(k_tensor, chunk.key_head), k_tensor.row_step, chunk.rows, 128);
  float* const beta = reinterpret_cast<float*>(shared + 17408);
  load_vector<cta, 16>(beta, chunk.at(beta_tensor, chunk.head), beta_tensor.row_step, chunk.rows);
  const SharedTile<bf16, 16, 128> do_(shared + 17472);
  load_rows<cta, 16>(do_, chunk.at(do_tensor, chunk.head), do_tensor.row_step, chunk.rows, 128);
  commit_copies();
  wait_for_copies();
  __syncthreads();
  const CxK gate = maximum(load<CxK>(g), -128.f);
  const CxK gamma = cumsum(gate);
  const CxK exp_gamma = exponential(gamma);
  const CxK q_in = load<CxK>(q) * exp_gamma;
  const SharedTile<bf16, 16, 128> q_in_s(shared + 0);
  __syncthreads();
  store(q_in_s, q_in);
  __syncthreads();
  store_block<cta, 128>(in_record<bf16>(record, 0), q_in_s);
  float* const gamma_last = reinterpret_cast<float*>(shared + 0);
  __syncthreads();
  take_row(gamma_last, gamma, 15);
  __syncthreads();
  const CxK k_out = load<CxK>(k) * exponential((over_columns<CxK>(gamma_last) - gamma));
  const SharedTile<bf16, 16, 128> k_out_s(shared + 512);
  store(k_out_s, k_out);
  __syncthreads();
  store_block<cta, 128>(in_record<bf16>(record, 4096), k_out_s);
  const CxK e = over_rows<CxK>(beta) * load<CxK>(k);
  const CxK e_in = e * exp_gamma;
  const SharedTile<bf16, 16, 128> e_in_s(shared + 512);
  __syncthreads();
  store(e_in_s, e_in);
  __syncthreads();
  store_block<cta, 128>(in_record<bf16>(record, 8704), e_in_s);
  const SharedTile<float, 16, 128> gamma_s(shared + 21824);
  store(gamma_s, gamma);
  const SharedTile<float, 16, 128> e_s(shared + 30528);
  store(e_s, e);
  const SharedTile<float, 16, 16> A_ek(shared + 512);
  // A_ek_ij = sum_d e_s_id k_jd exp(gamma_s_id - gamma_s_jd), i > j
  const SharedTile<float, 16, 16> A_qk(shared + 2048);
  // A_qk_ij = sum_d q_id k_jd exp(gamma_s_id - gamma_s_jd), i >= j
  __syncthreads();
  decay_dots<cta, Precision::bf16>(gamma_s, gamma_s, score<Triangle::strict_lower>(A_ek, e_s, k),
      score<Triangle::lower>(A_qk, q, k));
  const SharedTile<float, 16, 16> Z(shared + 3584);
  // Z = (I + A_ek)^-1
  __syncthreads();
  inverse_unit_lower<cta, Precision::tf32>(Z, A_ek);
  const SharedTile<bf16, 16, 16> Z_s(shared + 5120);
  __syncthreads();
  store(Z_s, load<CxC>(Z));
  __syncthreads();
  store_block<cta, 16>(in_record<bf16>(record, 8192), Z_s);
  float* const decay = reinterpret_cast<float*>(shared + 512);
  fill_vector<cta, 128>(decay, [&](int i) { return exponential(gamma_last[i]); });
  __syncthreads();
  store_vector<cta>(in_record<float>(record, 12800), 1, decay, 128);
  const CxV t1 = load<CxV>(do_) * scale;
  const SharedTile<bf16, 16, 16> A_qk_s(shared + 0);
  __syncthreads();
  store(A_qk_s, load<CxC>(A_qk));
  const SharedTile<bf16, 16, 128> t1_s(shared + 3584);
  store(t1_s, t1);
  __syncthreads();
  const CxV dX = product<CxV, Precision::bf16>(transposed(A_qk_s), t1_s);
  const CxV dX_2 = round_to<Precision::bf16>(dX);
  const SharedTile<bf16, 16, 128> dX_2_s(shared + 0);
  __syncthreads();
  store(dX_2_s, dX_2);
  __syncthreads();
  store_block<cta, 128>(in_record<bf16>(record, 13312), dX_2_s);
}

// A block for every sequence, value head and 64 value channels; value channels lie along the rows of tiles.
LINNET_KERNEL(128, 1) kda_backward_replay(const Tensor<const bf16> v_tensor,
    const Tensor<const bf16> beta_tensor, const Tensor<const float> initial_state_tensor,
    const States states, unsigned char* workspace, const Batch batch) {
  using cta = Cta<4>;
  using VxC = Tile<64, 16, Rows<4>>;
  using VxK = Tile<64, 128, Rows<4>>;
  const auto sequence = Sequence<16>::find<64>(batch, blockIdx.x, 2);
  const auto fetch = [&](i64 turn) {
    const Chunk chunk = sequence.chunk(turn);
    unsigned char* const stage = shared + turn % 2 * 12352;
    unsigned char* const record = workspace + chunk.slot * 91136;
    float* const decay = reinterpret_cast<float*>(stage + 0);
    load_vector<cta, 128>(decay, in_record<float>(record, 12800), 1, 128);
    float* const beta = reinterpret_cast<float*>(stage + 512);
    load_vector<cta, 16>(beta, chunk.at(beta_tensor, chunk.head), beta_tensor.row_step, chunk.rows);
    const SharedTile<bf16, 16, 64> v(stage + 576);
    load_rows<cta, 16>(v, chunk.at(v_tensor, chunk.head) + sequence.first_value, v_tensor.row_step,
        chunk.rows, 128 - sequence.first_value);
    const SharedTile<bf16, 16, 128> e_in(stage + 2880);
    load_block<cta, 128>(e_in, in_record<bf16>(record, 8704), 16);
    const SharedTile<bf16, 16, 16> Z(stage + 7232);
    load_block<cta, 16>(Z, in_record<bf16>(record, 8192), 16);
    const SharedTile<bf16, 16, 128> k_out(stage + 8000);
    load_block<cta, 128>(k_out, in_record<bf16>(record, 4096), 16);
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
    unsigned char* const stage = shared + turn % 2 * 12352;
    unsigned char* const record = workspace + chunk.slot * 91136;
    float* const decay = reinterpret_cast<float*>(stage + 0);
    float* const beta = reinterpret_cast<float*>(stage + 512);
    const SharedTile<bf16, 16, 64> v(stage + 576);
    const SharedTile<bf16, 16, 128> e_in(stage + 2880);
    const SharedTile<bf16, 16, 16> Z(stage + 7232);
    const SharedTile<bf16, 16, 128> k_out(stage + 8000);
    store_state<StateOrder::k_first, 128>(own_states.at(turn), S, sequence.first_value);
    const VxC t1 = minus_product<Precision::bf16>(over_columns<VxC>(beta) * load<VxC>(transposed(v)),
        S, transposed(e_in));
    const VxC X = product<VxC, Precision::bf16>(t1, transposed(Z));
    write_block<128>(in_record<bf16>(record, 17408) + sequence.first_value * 128, S,
        128 - sequence.first_value);
    write_block<16>(in_record<bf16>(record, 50176) + sequence.first_value * 16, X,
        128 - sequence.first_value);
    const VxK S_next = plus_product<Precision::bf16>(over_columns<VxK>(decay) * S, X, k_out);
    S = S_next;
  }
}

// A block for every sequence, value head and 64 value channels; value channels lie along the rows of tiles.
LINNET_KERNEL(128, 1) kda_backward_reverse(const float scale, const Tensor<const bf16> do_tensor,
    const Tensor<const float> dfinal_state_tensor, const Tensor<float> dinitial_state_tensor,
    const States states, unsigned char* workspace, const Batch batch) {
  using cta = Cta<4>;
  using VxC = Tile<64, 16, Rows<4>>;
  using VxK = Tile<64, 128, Rows<4>>;
  const auto sequence = Sequence<16>::find<64>(batch, blockIdx.x, 2);
  const auto fetch = [&](i64 turn) {
    const Chunk chunk = sequence.chunk(sequence.chunks() - 1 - turn);
    unsigned char* const stage = shared + turn % 2 * 18944;
    unsigned char* const record = workspace + chunk.slot * 91136;
    const SharedTile<bf16, 16, 64> do_(stage + 0);
    load_rows<cta, 16>(do_, chunk.at(do_tensor, chunk.head) + sequence.first_value, do_tensor.row_step,
        chunk.rows, 128 - sequence.first_value);
    const SharedTile<bf16, 16, 128> q_in(stage + 2304);
    load_block<cta, 128>(q_in, in_record<bf16>(record, 0), 16);
    const SharedTile<bf16, 16, 128> k_out(stage + 6656);
    load_block<cta, 128>(k_out, in_record<bf16>(record, 4096), 16);
    const SharedTile<bf16, 16, 64> dX(stage + 11008);
    load_rows<cta, 16>(dX, in_record<bf16>(record, 13312) + sequence.first_value, 128, 16,
        128 - sequence.first_value);
    const SharedTile<bf16, 16, 16> Z(stage + 13312);
    load_block<cta, 16>(Z, in_record<bf16>(record, 8192), 16);
    const SharedTile<bf16, 16, 128> e_in(stage + 14080);
    load_block<cta, 128>(e_in, in_record<bf16>(record, 8704), 16);
    float* const decay = reinterpret_cast<float*>(stage + 18432);
    load_vector<cta, 128>(decay, in_record<float>(record, 12800), 1, 128);
    commit_copies();
  };
  VxK dS = load_state<VxK, StateOrder::k_first, 128>(sequence.state(dfinal_state_tensor),
      sequence.first_value);
  const auto own_states = sequence.own(states);
  for (i64 turn = -1; turn < sequence.chunks(); ++turn) {
    __syncthreads();
    if (turn + 1 < sequence.chunks()) fetch(turn + 1);
    else commit_copies();
    if (turn < 0) continue;
    wait_for_copies<1>();
    __syncthreads();
    const Chunk chunk = sequence.chunk(sequence.chunks() - 1 - turn);
    unsigned char* const stage = shared + turn % 2 * 18944;
    unsigned char* const record = workspace + chunk.slot * 91136;
    const SharedTile<bf16, 16, 64> do_(stage + 0);
    const SharedTile<bf16, 16, 128> q_in(stage + 2304);
    const SharedTile<bf16, 16, 128> k_out(stage + 6656);
    const SharedTile<bf16, 16, 64> dX(stage + 11008);
    const SharedTile<bf16, 16, 16> Z(stage + 13312);
    const SharedTile<bf16, 16, 128> e_in(stage + 14080);
    float* const decay = reinterpret_cast<float*>(stage + 18432);
    store_state<StateOrder::k_first, 128>(own_states.at(turn), dS, sequence.first_value);
    const VxC t1 = load<VxC>(transposed(do_)) * scale;
    const VxC dX_2 = plus_product<Precision::bf16>(load<VxC>(transposed(dX)), dS, transposed(k_out));
    const VxC Y = product<VxC, Precision::bf16>(dX_2, Z);
    write_block<128>(in_record<bf16>(record, 54272) + sequence.first_value * 128, dS,
        128 - sequence.first_value);
    write_block<16>(in_record<bf16>(record, 87040) + sequence.first_value * 16, Y,
        128 - sequence.first_value);
    const VxK dS_2 =
        minus_product<Precision::bf16>(plus_product<Precision::bf16>(dS * over_columns<VxK>(decay),
        t1, q_in), Y, e_in);
    dS = dS_2;
  }
  store_state<StateOrder::k_first, 128>(sequence.state(dinitial_state_tensor), dS,
      sequence.first_value);
}

// A block for every chunk and value head.
LINNET_KERNEL(256,
    __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200 ? 1 : 2) kda_backward_finish(const Tensor<const bf16> q_tensor, const Tensor<const bf16> k_tensor, const Tensor<const bf16> v_tensor, const Tensor<const float> g_tensor, const Tensor<const bf16> beta_tensor, const float scale, const Tensor<const bf16> do_tensor, const Tensor<float> dq_partial, const Tensor<bf16> dq_tensor, const Tensor<float> dk_partial, const Tensor<bf16> dk_tensor, const Tensor<bf16> dv_tensor, const Tensor<float> dg_tensor, const Tensor<bf16> dbeta_tensor, unsigned char* workspace, const Batch batch) {
  using cta = Cta<8>;
  using CxC = Tile<16, 16, Columns<8>>;
  using CxK = Tile<16, 128, Columns<8>>;
  using CxV = Tile<16, 128, Columns<8>>;
  using VxK_band = Tile<16, 128, Columns<8>>;
  const Chunk chunk = find_chunk<16>(batch, blockIdx.x);
  if (chunk.rows == 0) {
    return;
  }
  unsigned char* const record = workspace + chunk.slot * 91136;
  const SharedTile<bf16, 16, 128> do_(shared + 0);
  load_rows<cta, 16>(do_, chunk.at(do_tensor, chunk.head), do_tensor.row_step, chunk.rows, 128);
  const SharedTile<bf16, 128, 16> X(shared + 4352);
  load_block<cta, 16>(X, in_record<bf16>(record, 50176), 128);
  const SharedTile<float, 16, 128> g(shared + 10496);
  load_rows<cta, 16>(g, chunk.at(g_tensor, chunk.head), g_tensor.row_step, chunk.rows, 128);
  const SharedTile<bf16, 16, 128> k(shared + 19200);
  load_rows<cta, 16>(k, chunk.at(k_tensor, chunk.key_head), k_tensor.row_step, chunk.rows, 128);
  const SharedTile<bf16, 16, 128> q(shared + 23552);
  load_rows<cta, 16>(q, chunk.at(q_tensor, chunk.key_head), q_tensor.row_step, chunk.rows, 128);
  const SharedTile<bf16, 128, 16> Y(shared + 27904);
  load_block<cta, 16>(Y, in_record<bf16>(record, 87040), 128);
  float* const beta = reinterpret_cast<float*>(shared + 34048);
  load_vector<cta, 16>(beta, chunk.at(beta_tensor, chunk.head), beta_tensor.row_step, chunk.rows);
  const SharedTile<bf16, 16, 128> v(shared + 34112);
  load_rows<cta, 16>(v, chunk.at(v_tensor, chunk.head), v_tensor.row_step, chunk.rows, 128);
  commit_copies();
  wait_for_copies();
  __syncthreads();
  const SharedTile<bf16, 16, 128> t_s(shared + 38464);
  store(t_s, (load<CxV>(do_) * scale));
  __syncthreads();
  const CxC dA_qk = product<CxC, Precision::bf16>(t_s, X);
  const CxK gamma = cumsum(maximum(load<CxK>(g), -128.f));
  const CxC t1 = product<CxC, Precision::bf16>(transposed(Y), X);
  const CxC t2 = keep<Triangle::strict_lower>(t1);
  const SharedTile<float, 16, 128> gamma_s(shared + 42816);
  store(gamma_s, gamma);
  const SharedTile<float, 16, 16> dA_qk_s(shared + 51520);
  store(dA_qk_s, dA_qk);
  const SharedTile<float, 16, 16> t2_s(shared + 53056);
  store(t2_s, t2);
  const SharedTile<float, 16, 128> e_s(shared + 54592);
  store(e_s, (over_rows<CxK>(beta) * load<CxK>(k)));
  CxK t3, t4, t5, de;
  // t3_i = sum_j dA_qk_s_ij k_j exp(gamma_s_i - gamma_s_j)
  // t4_j = sum_i dA_qk_s_ij q_i exp(gamma_s_i - gamma_s_j)
  // t5_j = sum_i t2_s_ij e_s_i exp(gamma_s_i - gamma_s_j)
  // de_i = sum_j t2_s_ij k_j exp(gamma_s_i - gamma_s_j)
  __syncthreads();
  decay_applies<Precision::tf32>(gamma_s, gamma_s, onto_rows<Triangle::strict_lower>(t3, dA_qk_s, k),
      onto_columns<Triangle::strict_lower>(t4, dA_qk_s, q), onto_columns<Triangle::strict_lower>(t5,
      t2_s, e_s), onto_rows<Triangle::strict_lower>(de, t2_s, k));
  float* const diagonal = reinterpret_cast<float*>(shared + 53056);
  float* const partial = reinterpret_cast<float*>(shared + 53120);
  __syncthreads();
  row_sums(diagonal,
      keep<Triangle::lower>(load<CxC>(dA_qk_s)) - keep<Triangle::strict_lower>(load<CxC>(dA_qk_s)),
      partial);
  __syncthreads();
  const CxK dq = t3 + (over_rows<CxK>(diagonal) * load<CxK>(k));
  const CxK dgamma = load<CxK>(q) * t3;
  const CxK dgamma_2 = dgamma - (load<CxK>(k) * t4);
  const CxK dk = (over_rows<CxK>(diagonal) * load<CxK>(q)) + t4;
  const CxK dk_2 = dk - t5;
  const CxK dgamma_3 = dgamma_2 + (load<CxK>(k) * t5);
  const CxK dgamma_4 = dgamma_3 - (load<CxK>(e_s) * de);
  const CxK de_2 = negative(de);
  const SharedTile<bf16, 32, 128> S_band(shared + 63296);
  const SharedTile<bf16, 32, 128> dS_band(shared + 72000);
  CxK dq_in = constant<CxK>(0.f);
  CxK dk_out = constant<CxK>(0.f);
  CxK de_in = constant<CxK>(0.f);
  VxK_band ddecay_bands = constant<VxK_band>(0.f);
  const SharedTile<bf16, 16, 128> S_band_2(shared + 63296);
  const SharedTile<bf16, 16, 128> dS_band_2(shared + 72000);
  const SharedTile<bf16, 16, 128> S_band_3(shared + 67648);
  const SharedTile<bf16, 16, 128> dS_band_3(shared + 76352);
  // (gridDim.z is 1: a length that the compilers do not know is not unrolled)
  for (int row = 0; row < 128 * gridDim.z; row += 32) {
    __syncthreads();
    load_block<cta, 128>(S_band, in_record<bf16>(record, 17408) + row * 128, 128 - row);
    load_block<cta, 128>(dS_band, in_record<bf16>(record, 54272) + row * 128, 128 - row);
    commit_copies();
    wait_for_copies();
    __syncthreads();
    add_band<Precision::bf16>(dq_in, t_s, S_band, row);
    add_band<Precision::bf16>(dk_out, transposed(X), dS_band, row);
    add_band<Precision::bf16>(de_in, transposed(Y), S_band, row);
    ddecay_bands = ddecay_bands + (load<VxK_band>(dS_band_2) * load<VxK_band>(S_band_2));
    ddecay_bands = ddecay_bands + (load<VxK_band>(dS_band_3) * load<VxK_band>(S_band_3));
  }
  float* const ddecay = reinterpret_cast<float*>(shared + 51520);
  column_sums(ddecay, ddecay_bands);
  const CxK exp_gamma = exponential(load<CxK>(gamma_s));
  const CxK de_3 = de_2 - (de_in * exp_gamma);
  const CxK dq_2 = dq + (dq_in * exp_gamma);
  const SharedTile<float, 16, 128> dq_2_s(shared + 0);
  __syncthreads();
  store(dq_2_s, dq_2);
  __syncthreads();
  store_share<cta>(dq_tensor, dq_partial, batch, chunk, dq_2_s);
  const CxK dexp_gamma = dq_in * load<CxK>(q);
  const CxK dexp_gamma_2 = dexp_gamma - (de_in * load<CxK>(e_s));
  float* const gamma_last = reinterpret_cast<float*>(shared + 0);
  __syncthreads();
  take_row(gamma_last, load<CxK>(gamma_s), 15);
  __syncthreads();
  const CxK t6 = exponential((over_columns<CxK>(gamma_last) - load<CxK>(gamma_s)));
  const CxK dk_3 = dk_2 + (dk_out * t6);
  const CxK dk_4 = dk_3 + (de_3 * over_rows<CxK>(beta));
  const SharedTile<float, 16, 128> dk_4_s(shared + 512);
  store(dk_4_s, dk_4);
  __syncthreads();
  store_share<cta>(dk_tensor, dk_partial, batch, chunk, dk_4_s);
  const CxK dbeta = de_3 * load<CxK>(k);
  float* const t7 = reinterpret_cast<float*>(shared + 512);
  float* const partial_2 = reinterpret_cast<float*>(shared + 576);
  __syncthreads();
  row_sums(t7, dbeta, partial_2);
  const CxK dgamma_last = (dk_out * load<CxK>(k)) * t6;
  const CxK dgate = cumsum<Direction::forward, Own::excluded>(dgamma_last);
  const CxV dv = load<CxV>(transposed(Y)) * over_rows<CxV>(beta);
  const SharedTile<bf16, 16, 128> dv_s(shared + 576);
  __syncthreads();
  store(dv_s, dv);
  __syncthreads();
  store_rows<cta, 16>(chunk.at(dv_tensor, chunk.head), dv_tensor.row_step, dv_s, chunk.rows, 128);
  float* const decay = reinterpret_cast<float*>(shared + 576);
  __syncthreads();
  fill_vector<cta, 128>(decay, [&](int i) { return exponential(gamma_last[i]); });
  float* const t8 = reinterpret_cast<float*>(shared + 0);
  __syncthreads();
  fill_vector<cta, 128>(t8, [&](int i) { return (ddecay[i] * decay[i]); });
  __syncthreads();
  const CxK dgamma_5 = dgamma_4 + place_row<CxK>(t8, 15);
  const CxK dgamma_6 = dgamma_5 + (dexp_gamma_2 * exp_gamma);
  const CxK dgate_2 = cumsum<Direction::reverse, Own::included>(dgamma_6);
  const CxK dgate_3 = dgate + dgate_2;
  const CxK dg = choose(at_least(load<CxK>(g), -128.f), dgate_3, 0.f);
  const SharedTile<float, 16, 128> dg_s(shared + 576);
  store(dg_s, dg);
  __syncthreads();
  store_rows<cta, 16>(chunk.at(dg_tensor, chunk.head), dg_tensor.row_step, dg_s, chunk.rows, 128);
  float* const dbeta_2 = reinterpret_cast<float*>(shared + 0);
  float* const partial_3 = reinterpret_cast<float*>(shared + 576);
  __syncthreads();
  row_sums(dbeta_2, load<CxV>(transposed(Y)) * load<CxV>(v), partial_3);
  float* const dbeta_3 = reinterpret_cast<float*>(shared + 64);
  __syncthreads();
  fill_vector<cta, 16>(dbeta_3, [&](int i) { return (dbeta_2[i] + t7[i]); });
  __syncthreads();
  store_vector<cta>(chunk.at(dbeta_tensor, chunk.head), dbeta_tensor.row_step, dbeta_3, chunk.rows);
}

// A block for every 1024 numbers of the outputs that value heads or chunks share, or 256 of those with one a head.
LINNET_KERNEL(256, 1) kda_backward_gather(const Tensor<float> dq_partial,
    const Tensor<bf16> dq_tensor, const Tensor<float> dk_partial, const Tensor<bf16> dk_tensor,
    const Batch batch, const i64 tokens, const i64 slots) {
  using cta = Cta<8>;
  i64 block = blockIdx.x;
  const i64 dq_blocks = !batch.shares_heads() ? 0 : blocks_for<cta>(tokens * batch.heads * 32);
  if (block < dq_blocks) {
    gather_heads<cta, 4>(dq_tensor, dq_partial.data, block, batch, tokens, 128);
    return;
  }
  block -= dq_blocks;
  const i64 dk_blocks = !batch.shares_heads() ? 0 : blocks_for<cta>(tokens * batch.heads * 32);
  if (block < dk_blocks) {
    gather_heads<cta, 4>(dk_tensor, dk_partial.data, block, batch, tokens, 128);
    return;
  }
  block -= dk_blocks;
}
