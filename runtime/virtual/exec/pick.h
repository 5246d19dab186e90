// Chooses a handler template's instance by PTX type: pick_integer(t, []<class T>{ return h<T>; }).
#pragma once

#include "exec/program.h"

namespace linnet::vgpu {

template <class F>
Handler pick_integer(Type type, F f) {
  switch (type) {
    case Type::U16:
      return f.template operator()<uint16_t>();
    case Type::S16:
      return f.template operator()<int16_t>();
    case Type::U32:
      return f.template operator()<uint32_t>();
    case Type::S32:
      return f.template operator()<int32_t>();
    case Type::U64:
      return f.template operator()<uint64_t>();
    case Type::S64:
      return f.template operator()<int64_t>();
    default:
      return nullptr;
  }
}

// By width only: the unsigned type of 1, 2, 4 or 8 bytes.
template <class F>
Handler pick_bits(int bytes, F f) {
  switch (bytes) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    case 8:
      return f.template operator()<uint64_t>();
    default:
      return nullptr;
  }
}

}  // namespace linnet::vgpu
