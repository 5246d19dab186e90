// The conformance suite: what every device promises, as functions of the device. A device's test
// file names each in a test case.
#pragma once

#include "tests/conformance/subject.h"

namespace linnet::conformance {

// Every op, gate mode, format and direction against the reference; extremes finite; causal.
void meets_the_reference(const Device& device);

// How arguments lie in memory and what is asked for changes no bit.
void state_layouts_agree(const Device& device);
void narrow_states_are_rounded_once(const Device& device);
void narrow_gates_are_read_exactly(const Device& device);
void optional_states_may_be_absent(const Device& device);
void states_are_those_of_prefixes(const Device& device);
void gaps_between_rows_do_not_matter(const Device& device);
void packed_qkv_is_read_in_place(const Device& device);
void batch_equals_packing(const Device& device);
void decode_updates_its_pool_in_place(const Device& device);
void workspace_may_be_the_callers(const Device& device);

// The same bits, however a sequence is run.
void packing_does_not_matter(const Device& device);
void runs_repeat(const Device& device);
void other_device_agrees(const Device& device, const Device& other);
void decode_continues_prefill(const Device& device);
void threads_share_an_op(const Device& device);

}  // namespace linnet::conformance
