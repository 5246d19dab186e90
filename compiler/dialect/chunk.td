// The `chunk` dialect: the law of one token, and the chunk graph derived from it. Plain arithmetic is
// `arith` and `math` on ranked tensors; this file adds only what they lack.
#ifndef LINNET_CHUNK_TD
#define LINNET_CHUNK_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Chunk_Dialect : Dialect {
  let name = "chunk";
  let cppNamespace = "::linnet::chunk";
  let summary = "Laws of one token and the chunk graphs derived from them";
  let useDefaultAttributePrinterParser = 1;
  let hasConstantMaterializer = 1;
}

//===------------------------------------------------------------------------------------------===//
// Attributes
//===------------------------------------------------------------------------------------------===//

class Chunk_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::linnet::chunk";
  let genSpecializedAttr = 0;
}
class Chunk_EnumAttr<EnumAttrInfo info, string mnemonic> : EnumAttr<Chunk_Dialect, info, mnemonic> {
  let assemblyFormat = "`` $value";  // no space of its own in front
}

def Axis : Chunk_Enum<"Axis", "what one axis of a tile counts", [
  I32EnumAttrCase<"token", 0>, I32EnumAttrCase<"key", 1>, I32EnumAttrCase<"value", 2>]>;

def Scope : Chunk_Enum<"Scope", "of what there is one: every token, sequence, head, or the whole call", [
  I32EnumAttrCase<"token", 0>, I32EnumAttrCase<"sequence", 1>, I32EnumAttrCase<"head", 2>,
  I32EnumAttrCase<"constant", 3>]>;
def ScopeAttr : Chunk_EnumAttr<Scope, "scope">;

def Role : Chunk_Enum<"Role", "what fold-gate may put in front of an input", [
  I32EnumAttrCase<"gate", 0>, I32EnumAttrCase<"strength", 1>, I32EnumAttrCase<"normalised", 2>]>;
def RoleAttr : Chunk_EnumAttr<Role, "role">;

def Triangle : Chunk_Enum<"Triangle", "the kept part of a token x token tile", [
  I32EnumAttrCase<"lower", 0>, I32EnumAttrCase<"strict_lower", 1>]>;
def TriangleAttr : Chunk_EnumAttr<Triangle, "triangle">;

def Side : Chunk_Enum<"Side", "which side of a decay_dot an adjoint belongs to", [
  I32EnumAttrCase<"rows", 0>, I32EnumAttrCase<"columns", 1>]>;
def SideAttr : Chunk_EnumAttr<Side, "side">;

def Precision : Chunk_Enum<"Precision", "a number format values are rounded to", [
  I32EnumAttrCase<"f32", 0>, I32EnumAttrCase<"tf32", 1>, I32EnumAttrCase<"bf16", 2>,
  I32EnumAttrCase<"f16", 3>]>;
def PrecisionAttr : Chunk_EnumAttr<Precision, "precision">;

def Form : Chunk_Enum<"Form", "how the diagonal blocks of a decay_dot are bounded", [
  I32EnumAttrCase<"pairwise", 0>, I32EnumAttrCase<"anchored", 1>]>;

class Chunk_Attr<string name, string attr_mnemonic> : AttrDef<Chunk_Dialect, name> {
  let mnemonic = attr_mnemonic;
}

def AxesAttr : Chunk_Attr<"Axes", "axes"> {
  let summary = "the names of a tile's axes, carried as the tensor's encoding";
  let parameters = (ins ArrayRefParameter<"::linnet::chunk::Axis">:$axes);
  let assemblyFormat = "`<` $axes `>`";
}

def BoundAttr : Chunk_Attr<"Bound", "bound"> {
  let summary = "the bounded form of the exponentials inside a decay_dot (MATH.md c, E2 to E4c)";
  let description = [{
    Blocks of `block` rows. Off the diagonal both factors are anchored at the later block's first row (E2;
    for column sums at the earlier block's last row, E2'). On the diagonal: `pairwise` takes exp of the
    difference (E3); `anchored` splits it at row 0 of the block plus the constant (block - 1) / 2 * lower (E4c),
    where `lower` is a promised lower bound of every gate.
  }];
  let parameters = (ins "::linnet::chunk::Form":$form, "int64_t":$block, "::mlir::FloatAttr":$lower);
  let assemblyFormat = "`<` $form `,` $block `,` $lower `>`";
}

//===------------------------------------------------------------------------------------------===//
// Op classes
//===------------------------------------------------------------------------------------------===//

def Tile : RankedTensorOf<[F32]>;

class Chunk_Op<string mnemonic, list<Trait> traits = []> : Op<Chunk_Dialect, mnemonic, traits>;
class Chunk_Named<string mnemonic, list<Trait> traits = []>
    : Chunk_Op<mnemonic, traits # [DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]>;
class Chunk_Pure<string mnemonic, list<Trait> traits = []> : Chunk_Named<mnemonic, traits # [Pure]>;
class Chunk_Inferred<string mnemonic, list<Trait> traits = []>
    : Chunk_Pure<mnemonic, traits # [InferTypeOpAdaptor]>;

//===------------------------------------------------------------------------------------------===//
// Containers: a law, a graph, and what both share
//===------------------------------------------------------------------------------------------===//

class Chunk_Container<string mnemonic> : Chunk_Op<mnemonic, [
    IsolatedFromAbove, Symbol, SingleBlock, NoTerminator, NoRegionArguments]> {
  let regions = (region SizedRegion<1>:$body);
}

def LawOp : Chunk_Container<"law"> {
  let summary = "the recurrence of one token of one head";
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<StrAttr>:$summary);
  let assemblyFormat = "$sym_name attr-dict-with-keyword $body";
  let hasRegionVerifier = 1;
}

def GraphOp : Chunk_Container<"graph"> {
  let summary = "one head of one sequence, chunk by chunk";
  let description = [{
    Values outside a `scan` stand for one tile a chunk: the ops that make them are mapped over the chunks of a
    sequence. `chunk_size` is the number of tokens of a chunk; rows past the end of a sequence read as zero. `after`
    names the last derivation that ran, so that a graph read from text goes on from there.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$chunk_size, OptionalAttr<StrAttr>:$after);
  let assemblyFormat = "$sym_name `chunk` $chunk_size (`after` $after^)? attr-dict-with-keyword $body";
  let hasRegionVerifier = 1;
}

def InputOp : Chunk_Pure<"input"> {
  let summary = "an argument of the law or graph";
  let description = [{
    `key_heads`: the argument has one row a key head, shared by a group of value heads. `stored`: its format in memory.
  }];
  let arguments = (ins StrAttr:$name, ScopeAttr:$scope, UnitAttr:$key_heads, OptionalAttr<RoleAttr>:$role,
                       OptionalAttr<PrecisionAttr>:$storage);
  let results = (outs Tile:$result);
  let assemblyFormat = [{
    $name $scope (`key_heads` $key_heads^)? (`as` $role^)? (`stored` $storage^)? attr-dict `:` type($result)
  }];
}

def OutputOp : Chunk_Op<"output"> {
  let summary = "a result of the law or graph";
  let description = [{
    A token result is written row by row, a sequence result once a sequence. A head result is summed over chunks and
    sequences, a `key_heads` result over the value heads of its group: the adjoints of how inputs are shared.
  }];
  let arguments = (ins StrAttr:$name, Tile:$value, ScopeAttr:$scope, UnitAttr:$key_heads,
                       OptionalAttr<PrecisionAttr>:$storage);
  let assemblyFormat = [{
    $name `,` $value $scope (`key_heads` $key_heads^)? (`stored` $storage^)? attr-dict `:` type($value)
  }];
}

//===------------------------------------------------------------------------------------------===//
// The law of one token
//===------------------------------------------------------------------------------------------===//

def StateOp : Chunk_Pure<"state"> {
  let summary = "the state before the token";
  let results = (outs Tile:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def DecayOp : Chunk_Pure<"decay", [AllTypesMatch<["state", "result"]>]> {
  let summary = "S <- diag(exp g) S, or exp(g) S for a scalar g";
  let arguments = (ins Tile:$state, Tile:$gate);
  let results = (outs Tile:$result);
  let assemblyFormat = "$state `,` $gate attr-dict `:` type($state) `,` type($gate)";
  let hasVerifier = 1;
}

def ReadOp : Chunk_Inferred<"read"> {
  let summary = "S^T w";
  let arguments = (ins Tile:$state, Tile:$vector);
  let results = (outs Tile:$result);
  let assemblyFormat = "$state `,` $vector attr-dict `:` type($state) `,` type($vector) `->` type($result)";
}

def WriteOp : Chunk_Pure<"write", [AllTypesMatch<["state", "result"]>]> {
  let summary = "S <- S + u x^T";
  let arguments = (ins Tile:$state, Tile:$key, Tile:$value);
  let results = (outs Tile:$result);
  let assemblyFormat = "$state `,` $key `,` $value attr-dict `:` type($state) `,` type($key) `,` type($value)";
  let hasVerifier = 1;
}

def NextOp : Chunk_Op<"next"> {
  let summary = "the state after the token";
  let arguments = (ins Tile:$state);
  let assemblyFormat = "$state attr-dict `:` type($state)";
}

//===------------------------------------------------------------------------------------------===//
// Tiles
//===------------------------------------------------------------------------------------------===//

def MatmulOp : Chunk_Inferred<"matmul"> {
  let summary = "product of two tiles; operands rounded to the precision, sums in f32";
  let arguments = (ins Tile:$lhs, Tile:$rhs, UnitAttr:$transpose_lhs, UnitAttr:$transpose_rhs,
                       OptionalAttr<PrecisionAttr>:$precision);
  let results = (outs Tile:$result);
  let assemblyFormat = [{
    $lhs (`transposed` $transpose_lhs^)? `,` $rhs (`transposed` $transpose_rhs^)? (`in` $precision^)? attr-dict
    `:` type($lhs) `,` type($rhs) `->` type($result)
  }];
  let hasCanonicalizer = 1;
}

def CumsumOp : Chunk_Pure<"cumsum", [AllTypesMatch<["source", "result"]>]> {
  let summary = "running sum over the tokens of a chunk";
  let arguments = (ins Tile:$source, UnitAttr:$exclusive, UnitAttr:$reverse);
  let results = (outs Tile:$result);
  let assemblyFormat = "$source (`exclusive` $exclusive^)? (`reverse` $reverse^)? attr-dict `:` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def MaskOp : Chunk_Pure<"mask", [AllTypesMatch<["source", "result"]>]> {
  let summary = "keeps a triangle of a token x token tile; the rest is zero by selection";
  let arguments = (ins Tile:$source, TriangleAttr:$triangle);
  let results = (outs Tile:$result);
  let assemblyFormat = "$source $triangle attr-dict `:` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def DecayMaskOp : Chunk_Inferred<"decay_mask"> {
  let summary = "exp(rows_i - columns_j) on a triangle and zero elsewhere, gates per token (E5: selected before exp)";
  let arguments = (ins Tile:$rows, Tile:$columns, TriangleAttr:$triangle);
  let results = (outs Tile:$result);
  let assemblyFormat = "$rows `,` $columns $triangle attr-dict `:` type($rows) `,` type($columns) `->` type($result)";
  let hasCanonicalizer = 1;
}

def DecayDotOp : Chunk_Inferred<"decay_dot"> {
  let summary = "sum_d lhs_id rhs_jd exp(rows_id - columns_jd) on a triangle, gates per key channel (F1)";
  let arguments = (ins Tile:$lhs, Tile:$rhs, Tile:$rows, Tile:$columns, TriangleAttr:$triangle,
                       OptionalAttr<BoundAttr>:$bound, OptionalAttr<PrecisionAttr>:$precision);
  let results = (outs Tile:$result);
  let assemblyFormat = [{
    $lhs `,` $rhs `,` $rows `,` $columns $triangle (`bound` $bound^)? (`in` $precision^)? attr-dict
    `:` type($lhs) `,` type($rhs) `,` type($rows) `,` type($columns) `->` type($result)
  }];
  let hasCanonicalizer = 1;
}

def DecayApplyOp : Chunk_Inferred<"decay_apply"> {
  let summary = "the adjoints of decay_dot (B6)";
  let description = [{
    rows:    result_i = sum_j matrix_ij vectors_j exp(rows_i - columns_j)
    columns: result_j = sum_i matrix_ij vectors_i exp(rows_i - columns_j), both over the triangle only.
  }];
  let arguments = (ins Tile:$matrix, Tile:$vectors, Tile:$rows, Tile:$columns, SideAttr:$side,
                       TriangleAttr:$triangle, OptionalAttr<BoundAttr>:$bound,
                       OptionalAttr<PrecisionAttr>:$precision);
  let results = (outs Tile:$result);
  let assemblyFormat = [{
    $side $matrix `,` $vectors `,` $rows `,` $columns $triangle (`bound` $bound^)? (`in` $precision^)? attr-dict
    `:` type($matrix) `,` type($vectors) `,` type($rows) `,` type($columns) `->` type($result)
  }];
}

def InverseUnitLowerOp : Chunk_Pure<"inverse_unit_lower", [AllTypesMatch<["source", "result"]>]> {
  let summary = "(I + A)^-1 of a strictly lower triangular A (F2)";
  let arguments = (ins Tile:$source, OptionalAttr<PrecisionAttr>:$precision);
  let results = (outs Tile:$result);
  let assemblyFormat = "$source (`in` $precision^)? attr-dict `:` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def ReduceOp : Chunk_Inferred<"reduce"> {
  let summary = "sum over some dimensions";
  let arguments = (ins Tile:$source, DenseI64ArrayAttr:$dims);
  let results = (outs Tile:$result);
  let assemblyFormat = "$source $dims attr-dict `:` type($source) `->` type($result)";
  let hasFolder = 1;
  let hasCanonicalizer = 1;
}

def BroadcastOp : Chunk_Pure<"broadcast"> {
  let summary = "repeats a tile over the named dimensions of the result";
  let arguments = (ins Tile:$source, DenseI64ArrayAttr:$dims);
  let results = (outs Tile:$result);
  let assemblyFormat = "$source $dims attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
  let hasCanonicalizer = 1;
}

def RowOp : Chunk_Inferred<"row"> {
  let summary = "one token's row";
  let arguments = (ins Tile:$source, I64Attr:$index);
  let results = (outs Tile:$result);
  let assemblyFormat = "$source `[` $index `]` attr-dict `:` type($source) `->` type($result)";
}

def PlaceRowOp : Chunk_Pure<"place_row"> {
  let summary = "a tile that is zero but for one row: the adjoint of row";
  let arguments = (ins Tile:$source, I64Attr:$index);
  let results = (outs Tile:$result);
  let assemblyFormat = "$source `[` $index `]` attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def ValidOp : Chunk_Pure<"valid", [AllTypesMatch<["source", "result"]>]> {
  let summary = "zero in the rows past the end of the sequence";
  let arguments = (ins Tile:$source);
  let results = (outs Tile:$result);
  let assemblyFormat = "$source attr-dict `:` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

class Chunk_Unary<string mnemonic, string text>
    : Chunk_Pure<mnemonic, [AllTypesMatch<["source", "result"]>]> {
  let summary = text;
  let arguments = (ins Tile:$source);
  let results = (outs Tile:$result);
  let assemblyFormat = "$source attr-dict `:` type($result)";
}
def SigmoidOp : Chunk_Unary<"sigmoid", "1 / (1 + exp(-x)), finite for every finite x">;
def SoftplusOp : Chunk_Unary<"softplus", "max(x, 0) + log1p(exp(-|x|))">;

def RoundOp : Chunk_Pure<"round", [AllTypesMatch<["source", "result"]>]> {
  let summary = "rounds to a narrower format, as storing and loading would";
  let arguments = (ins Tile:$source, PrecisionAttr:$precision);
  let results = (outs Tile:$result);
  let assemblyFormat = "$source `to` $precision attr-dict `:` type($result)";
}

//===------------------------------------------------------------------------------------------===//
// Stages
//===------------------------------------------------------------------------------------------===//

def ScanOp : Chunk_Op<"scan", [SingleBlock, RecursiveMemoryEffects,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames", "getAsmBlockArgumentNames"]>]> {
  let summary = "carries state from chunk to chunk";
  let description = [{
    The body runs once a chunk, in order (or from the last chunk to the first). Its arguments are the carried values;
    `yield` gives their next values and then the tiles this chunk emits. Results: the final carried values, then
    the emitted tiles, one a chunk.
  }];
  let arguments = (ins Variadic<Tile>:$init, UnitAttr:$reverse, OptionalAttr<StrAttr>:$stage);
  let results = (outs Variadic<Tile>:$results);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasRegionVerifier = 1;
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    mlir::Block& block() { return getBody().front(); }
    YieldOp yield();
    mlir::ValueRange finals() { return getResults().take_front(getInit().size()); }
    mlir::ValueRange emitted() { return getResults().drop_front(getInit().size()); }
  }];
}

def MapOp : Chunk_Named<"map", [SingleBlock, RecursiveMemoryEffects, NoRegionArguments]> {
  let summary = "a stage that treats every chunk on its own; its results are stored";
  let arguments = (ins StrAttr:$stage);
  let results = (outs Variadic<Tile>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$stage attr-dict-with-keyword (`->` type($results)^)? $body";
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    mlir::Block& block() { return getBody().front(); }
    YieldOp yield();
  }];
}

def YieldOp : Chunk_Op<"yield", [Pure, Terminator, ParentOneOf<["ScanOp", "MapOp"]>]> {
  let summary = "ends the body of a stage";
  let arguments = (ins Variadic<Tile>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
}

#endif  // LINNET_CHUNK_TD
