// Recording what streams are asked to do, and doing it again.
#pragma once

#include "driver/state.h"

namespace linnet::vgpu::driver {

void begin_capture(State& state, Stream& stream);
Graph* end_capture(State& state, Stream& stream);
// An event recorded in a captured stream pulls the streams that wait for it into the capture.
void record_event(Event& event, const Stream& stream);
void wait_event(Stream& stream, const Event& event);

GraphExec* instantiate(State& state, Graph& graph);
void run_nodes(const std::vector<std::shared_ptr<GraphNode>>& nodes);

}  // namespace linnet::vgpu::driver
