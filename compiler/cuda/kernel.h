// Writes the kernel of one loop of a tile program.
#pragma once

#include <map>
#include <set>

#include "compiler/cuda/layout.h"
#include "compiler/cuda/shared_memory.h"
#include "compiler/cuda/writer.h"
#include "compiler/tile/state_map.h"

namespace linnet::cuda {

// A tile or vector in shared memory, under its name in the kernel.
struct Shared {
  std::string name, element;  // of a vector "float" but where it is an input as it came
  bool flipped = false;
  Range place;
  bool kept = false;  // until the end of the kernel
};

// Everywhere a value is, while the kernel is written.
struct Home {
  std::string registers;       // a tile; empty if there is none
  std::string scalar;          // a number of which every thread has its own
  std::vector<Shared> shared;  // tiles of different formats, or one vector
};

// How a scan takes a sequence: whole, or by segments (templates/segment.cuh). Then a kernel finds
// what every segment makes of a state, and another scans the segments from the states that enter.
enum class Part { whole, maps, replay };

// A segment's record in the workspace: rows of `stride` numbers.
struct SegmentRecord {
  int64_t values = 0;  // rows of B^T, in whole blocks of value channels; then those of A^T
  int64_t rows = 0, stride = 0;
  int64_t size() const { return rows * stride; }
};

struct Segments {
  Part part = Part::whole;
  const StateMap* map = nullptr;
  SegmentRecord record;  // of a replay, as the maps have it
};

class KernelEmitter {
 public:
  // `tight`: no more shared memory than every GPU has. In a map tiles that can be had again make
  // room for others, where they otherwise stay until they were read for the last time; a scan takes
  // half the value channels at a time.
  KernelEmitter(const TileProgram& program, const Workspace& workspace,
                const std::vector<Argument>& arguments, const Memory& memory, size_t loop,
                bool tight, const Segments& segments = {});
  CudaKernel emit(Writer& module);
  // Of a replay: the kernel before it, that finds the states its segments start from.
  CudaKernel emit_merge(Writer& module);
  const SegmentRecord& record() const { return segments_.record; }

 private:
  using Value = mlir::Value;

  // What a value stands for: the op that makes it. A step (below) passes ops that do nothing to one
  // token.
  Value origin(Value value) const;
  bool is_passed(mlir::Operation* op) const;
  // How many axes count: tokens do not in a step. A tile has two, or lies along the rows of a scan.
  int64_t rank(Value value) const;
  bool is_tile(Value value) const;
  int64_t length(Value value) const;  // of a vector

  // kernel.cpp: the frame of a kernel.
  std::string blocks_at_a_time() const;  // on a multiprocessor
  void write_map();
  void write_turn();
  std::string kernel_name() const;
  bool is_last_loop() const { return loop_index_ + 1 == program_.loops().size(); }
  const Argument& argument(llvm::StringRef name) const;
  std::string tensor(const Argument& argument);  // its parameter, noted as used
  bool keeps_states() const;  // hands out the states between chunks if the caller wants them

  // scan.cpp
  void write_scan();
  void write_fetch();
  void write_start_of_turn(bool needs_record);
  std::vector<mlir::Operation*> updates_last() const;

  // transfers.cpp: what comes in and goes out.
  void load_shared_arguments();
  void load_inputs();
  void load_scalars();
  void load_token_input(chunk::InputOp input);
  void load_row(chunk::InputOp input, const Argument& argument);
  void load_stored(Value value);
  void load_stored_tile(Value value, const Stored& stored);
  void store_results(Value value);
  void store_to_workspace(Value value);
  void store_output(chunk::OutputOp output, Value value);
  void store_head_output(const Argument& argument, Value value);
  void zero_head_outputs();
  std::vector<Value> values_read() const;
  std::string rows_of(const Argument& argument);  // its first row of this chunk
  std::string packed_anew(Value state, const std::string& text);
  std::string unseen(const std::string& text) const;
  std::string record(Value value);  // a stored value's place in this chunk's record

  // segments.cpp: what is different for a scan of segments.
  bool is_whole() const { return segments_.part == Part::whole; }
  void set_segments();
  int64_t value_blocks() const;  // and, of maps, blocks of the channels beside them
  void write_find();
  void write_start(Value state, chunk::InputOp initial);
  void write_states(const std::string& state);
  void write_end();
  std::string state_order() const;

  // values.cpp: values as expressions, and their ways between registers and shared memory.
  std::string tile(Value value);                           // of a tile in registers
  std::string number(Value value);                         // of a scalar, the same in every thread
  std::string vector(Value value);                         // a pointer to a vector in shared memory
  std::string vector_element(Value value);                 // of a vector at `i`
  std::string element_at(Value value, const char* index);  // of a vector in shared memory
  std::string tile_expression(mlir::Operation* op);
  std::string arithmetic(mlir::Operation* op, llvm::function_ref<std::string(Value)> text,
                         const std::string& splat_type);
  // A sum and the products in it: they are added up where the rest of the sum is.
  struct Term {
    Value value;
    bool negative;
    bool is_product() const { return value.getDefiningOp<chunk::MatmulOp>() != nullptr; }
  };
  void collect_terms(Value value, bool negative, bool top, std::vector<Term>& terms);
  std::string sum(mlir::Operation* op);
  std::string plain_sum(const std::vector<Term>& terms, const std::string& type);
  std::pair<std::string, std::string> operands(chunk::MatmulOp op);
  std::string precision_of(chunk::MatmulOp op) const;
  bool joins_a_sum(mlir::Operation* op) const;
  std::string broadcast(chunk::BroadcastOp op);
  bool is_uniform(Value value) const;  // the same number everywhere
  std::string uniform(Value value);
  bool joins_tiles(mlir::Operation* op) const;
  bool is_inlined(mlir::Operation* op) const;
  bool is_streamed(Value value) const;  // a tile too large for shared memory: read in bands
  bool in_registers_flipped(Value value) const;
  // A tile in shared memory in some format (empty: any), made if there is none; `flip` reads it
  // with its rows and columns exchanged.
  std::string view(Value value, const std::string& element, bool flip = false);
  const Shared& in_shared(Value value, const std::string& element);
  std::string type_of(Value value);  // the alias of its register type
  std::string shared_type(Value value, const std::string& element, bool flipped) const;
  std::pair<int64_t, int64_t> shape(Value value, bool flipped) const;
  Shared declare_tile(Value value, const std::string& element, bool flipped,
                      const std::string& name);
  Shared declare_vector(Value value, const std::string& element = "float");
  void finish_values(size_t position);
  size_t last_use(Value value);
  // Shared memory for a tile, if need be in place of one that is read latest.
  Range allocate(int64_t bytes);
  bool make_room();
  void free_registers_early();
  void move_last_readers();
  void collect_sources(mlir::Operation* op, llvm::DenseSet<mlir::Operation*>& sources) const;
  bool can_be_had_again(Value value);
  bool can_be_scaled_in_place(chunk::DecayDotOp op);
  void fetch_again(Value value);
  bool is_made_again(mlir::Operation* op) const;
  bool is_loaded(Value value) const;  // an input, or another loop's: loaded if it is not there
  size_t next_use(Value value, size_t after);
  std::string fresh(const std::string& wish);
  std::string name_for(Value value);

  // tile_ops.cpp: one function for each kind of op.
  void write_op(mlir::Operation* op);
  void write_matmul(chunk::MatmulOp op);
  std::string streamed_product(chunk::MatmulOp op);
  void write_cumsum(chunk::CumsumOp op);
  void write_reduce(chunk::ReduceOp op);
  void write_row(chunk::RowOp op);
  void write_decay_dot(chunk::DecayDotOp op);
  void write_decay_apply(chunk::DecayApplyOp op);
  void write_inverse(chunk::InverseUnitLowerOp op);
  void write_elementwise(mlir::Operation* op);
  bool is_rounded_by_storing(mlir::Operation* op);
  void define_tile(Value value, const std::string& expression);
  std::string bound_arguments(chunk::BoundAttr bound, double& offset) const;

  // together.cpp: ops that are written as one.
  void bring_together();
  bool are_kin(mlir::Operation* a, mlir::Operation* b) const;
  bool is_pairwise(chunk::BoundAttr bound) const;
  bool sums_bands(mlir::Operation* op) const;
  bool splits_state(mlir::Operation* op) const;
  bool is_written_with_another(mlir::Operation* op) const;
  std::vector<mlir::Operation*> group_of(mlir::Operation* op) const;
  void collect_states(Value value, llvm::SetVector<Value>& states) const;
  void write_products(const std::vector<mlir::Operation*>& group);
  void write_decay_dots(const std::vector<mlir::Operation*>& group);
  void write_decay_applies(const std::vector<mlir::Operation*>& group);
  void sum_bands(chunk::ReduceOp op, const std::string& bands);
  void write_sums_over_bands(const std::vector<mlir::Operation*>& group);

  // A statement that reads what expressions have noted and writes `writes`.
  void statement(const std::string& text, const std::vector<Range>& writes = {});
  Shared scratch(const std::string& name, const std::string& type, int64_t bytes);

  const TileProgram& program_;
  const Workspace& workspace_;
  const std::vector<Argument>& arguments_;
  const Memory& caller_;
  size_t loop_index_;
  const Loop& loop_;
  Segments segments_;
  std::vector<mlir::Operation*>
      body_order_;  // the loop's ops, those that only make the next state last
  // Ops that are written as one, by the first of them; and the first of each one's group.
  llvm::DenseMap<mlir::Operation*, std::vector<mlir::Operation*>> groups_;
  llvm::DenseMap<mlir::Operation*, mlir::Operation*> leaders_;
  bool is_scan_;
  // The plain recurrence in one kernel, a token at a time: values of a token are vectors and
  // numbers, and products no matter for tensor cores.
  bool is_step_;
  bool is_tight_;
  bool is_long_ = false;  // a map of so many ops that registers are short
  int64_t chunk_, key_dim_ = 0, value_dim_ = 0, value_block_ = 0, warps_;

  Writer body_;
  SharedMemory memory_;
  std::vector<Range> reads_;  // of the statement that is being put together
  llvm::DenseMap<Value, Home> homes_;
  llvm::DenseMap<Value, size_t> last_uses_;
  size_t position_ = 0;                         // of the op that is being written
  llvm::DenseSet<Value> named_;                 // values that are part of its text
  std::map<std::string, std::string> aliases_;  // register types of this kernel
  std::set<std::string> names_, used_arguments_;
  bool uses_workspace_ = false, stores_in_workspace_ = false;
  // What a turn of a scan reads is fetched while the turn before it runs, into one of two stages.
  std::string base_ = "shared";  // what places in shared memory are counted from
  std::vector<std::string> declarations_;
  int64_t stages_ = 1, stage_bytes_ = 0;
  std::string band_;  // while a streamed tile is summed: the band's first row
  // While bands of states are in shared memory: their names.
  llvm::DenseMap<Value, std::string> bands_;
  int temporaries_ = 0;
};

}  // namespace linnet::cuda
