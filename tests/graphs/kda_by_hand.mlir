// KDA's chunk forward pass written by hand after MATH.md d ("KDA (vector gate)", solve form), independent of the
// derivation:  X = Z Diag(beta)(V - Ke S),  O = Qg S + Aqk X,  S' = exp(Gc) S + Kg^T X,  scale inside Qg and Aqk.
!C = tensor<64xf32, #chunk.axes<token>>
!CxC = tensor<64x64xf32, #chunk.axes<token, token>>
!CxK = tensor<64x128xf32, #chunk.axes<token, key>>
!CxV = tensor<64x128xf32, #chunk.axes<token, value>>
!K = tensor<128xf32, #chunk.axes<key>>
!KxV = tensor<128x128xf32, #chunk.axes<key, value>>
chunk.graph @kda_by_hand chunk 64 {
  %q = chunk.input "q" token key_heads : !CxK
  %k = chunk.input "k" token key_heads : !CxK
  %v = chunk.input "v" token : !CxV
  %g = chunk.input "g" token : !CxK
  %beta = chunk.input "beta" token : !C
  %scale = chunk.input "scale" constant : tensor<f32>
  %S0 = chunk.input "initial_state" sequence : !KxV
  %G = chunk.cumsum %g : !CxK
  %Gc = chunk.row %G[63] : !CxK -> !K
  %expG = math.exp %G : !CxK
  %scaleK = chunk.broadcast %scale [0, 1] : tensor<f32> -> !CxK
  %qs = arith.mulf %scaleK, %q : !CxK
  %Qg = arith.mulf %qs, %expG : !CxK
  %Ke = arith.mulf %k, %expG : !CxK
  %GcRows = chunk.broadcast %Gc [0] : !K -> !CxK
  %rest = arith.subf %GcRows, %G : !CxK
  %expRest = math.exp %rest : !CxK
  %Kg = arith.mulf %k, %expRest : !CxK
  %Aqk = chunk.decay_dot %qs, %k, %G, %G lower : !CxK, !CxK, !CxK, !CxK -> !CxC
  %N = chunk.decay_dot %k, %k, %G, %G strict_lower : !CxK, !CxK, !CxK, !CxK -> !CxC
  %betaC = chunk.broadcast %beta [1] : !C -> !CxC
  %A = arith.mulf %betaC, %N : !CxC
  %Z = chunk.inverse_unit_lower %A : !CxC
  %betaV = chunk.broadcast %beta [1] : !C -> !CxV
  %decay = math.exp %Gc : !K
  %decayV = chunk.broadcast %decay [1] : !K -> !KxV
  %ST, %o = chunk.scan (%S = %S0 : !KxV) -> (!KxV, !CxV) {
    %KeS = chunk.matmul %Ke, %S : !CxK, !KxV -> !CxV
    %residual = arith.subf %v, %KeS : !CxV
    %weighted = arith.mulf %betaV, %residual : !CxV
    %X = chunk.matmul %Z, %weighted : !CxC, !CxV -> !CxV
    %QgS = chunk.matmul %Qg, %S : !CxK, !KxV -> !CxV
    %AX = chunk.matmul %Aqk, %X : !CxC, !CxV -> !CxV
    %O = arith.addf %QgS, %AX : !CxV
    %kept = arith.mulf %decayV, %S : !KxV
    %new = chunk.matmul %Kg transposed, %X : !CxK, !CxV -> !KxV
    %next = arith.addf %kept, %new : !KxV
    chunk.yield %next, %O : !KxV, !CxV
  }
  chunk.output "o", %o token : !CxV
  chunk.output "final_state", %ST sequence : !KxV
}
