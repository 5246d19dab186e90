// The ops of the reference: for each its inputs with their layouts and the law of one token.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/reference/reference.h"
#include "tests/reference/tape.h"

namespace linnet::reference {

// What an input has one row of, and how many numbers that row has.
enum class Rows { token_key_head, token_value_head, value_head };
enum class Width { key, value, one };

struct Layout {
  Rows rows;
  Width width;
};

struct Input {
  Layout layout;
  const double* value = nullptr;
  double* gradient = nullptr;
};

// One token of one value head, as a law sees it.
class Token {
 public:
  Token(const Case& c, const std::map<std::string, Input>& inputs, Tape& tape)
      : case_(c), inputs_(inputs), tape_(tape) {}

  // o and do are the whole output tensors [tokens, HV, V].
  void move_to(int64_t token, int64_t value_head, double* o, const double* d_o);

  Vec input(const std::string& name) const;              // as given
  Vec key(const std::string& name) const;                // with the l2norm, if the case asks for it
  Vec strength(const std::string& name = "beta") const;  // with the case's beta activation
  Vec gate() const;                                      // g with the case's gate activation

  void decay(Vec g) { tape_.decay(g); }
  Vec read(Vec w) { return tape_.read(w); }
  void write(Vec u, Vec x) { tape_.write(u, x); }
  void output(Vec x) { tape_.output(x, case_.scale, o_, d_o_); }

 private:
  const Case& case_;
  const std::map<std::string, Input>& inputs_;
  Tape& tape_;
  int64_t token_ = 0, value_head_ = 0;
  double* o_ = nullptr;
  const double* d_o_ = nullptr;
};

struct Op {
  std::string name;
  std::map<std::string, Layout> inputs;
  void (*law)(Token&);
  bool allows_l2norm = true;
};

const std::vector<Op>& op_table();

int64_t width_of(const Case&, Layout);

}  // namespace linnet::reference
