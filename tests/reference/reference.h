// The independent token-by-token reference: every recurrence and its gradients in double precision,
// straight from the law of one token, sharing no code with the compiler that it judges.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace linnet::reference {

using Tensors = std::map<std::string, std::vector<double>>;

// How the input "g" becomes the log decay, and beta (beta1, beta2) the strength; MATH.md b.
enum class Gate { pre, softplus, bounded };
enum class Beta { plain, sigmoid, twice_sigmoid };

struct Case {
  std::string op;  // one of ops()
  Gate gate = Gate::pre;
  double lower_bound = -5;  // bounded only
  bool has_A_log = true;    // bounded only: false means e^A := 1 (softplus always has it)
  Beta beta = Beta::plain;
  bool l2norm = false;
  int64_t heads = 1, value_heads = 1, key_dim = 16, value_dim = 16;
  double scale = 1;
  std::vector<int64_t> lengths;  // tokens of each sequence, zero allowed
};

const std::vector<std::string>& ops();

// All arrays are row-major, the tokens of all sequences packed one after another. With H = heads,
// HV = value_heads, K = key_dim, V = value_dim, N = lengths.size():
//   q k p a k1 k2, rwkv7's b            [tokens, H, K]
//   v v1 v2, gdn2's w                   [tokens, HV, V]
//   vector gate g, gdn2's b             [tokens, HV, K]
//   scalar gate g, beta beta1 beta2     [tokens, HV]
//   retention's and lightning's g       [HV]
//   rwkv6's u                           [HV, K]
//   A_log; dt_bias (gate != pre)        [HV]; [HV] or, for a vector gate, [HV, K]
//   initial_state (missing: zeros)      [N, HV, K, V]
// Any other name, a missing one or a wrong size throws std::invalid_argument, as does asking for a
// gate activation, beta activation or l2norm that the op does not have.

// Returns "o" [tokens, HV, V] and "final_state" [N, HV, K, V].
Tensors forward(const Case&, const Tensors& inputs);

// Gradients of sum(o * do) + sum(final_state * dfinal_state): "d" + the name of every input, and
// always "dinitial_state". Takes "do" and "dfinal_state" (missing: zeros).
Tensors backward(const Case&, const Tensors& inputs, const Tensors& output_gradients);

}  // namespace linnet::reference
