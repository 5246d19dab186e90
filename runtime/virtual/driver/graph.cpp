#include "driver/graph.h"

namespace linnet::vgpu::driver {

void begin_capture(State& state, Stream& stream) {
  if (&stream == &state.default_stream)
    throw DriverError(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the default stream");
  if (stream.capture) throw DriverError(CUDA_ERROR_ILLEGAL_STATE, "the stream is being captured");
  stream.capture = new Graph;
  stream.capture_origin = true;
  state.graphs.insert(stream.capture);
}

Graph* end_capture(State& state, Stream& stream) {
  if (!stream.capture || !stream.capture_origin)
    throw DriverError(CUDA_ERROR_ILLEGAL_STATE, "the capture did not begin on this stream");
  Graph* graph = stream.capture;
  for (Stream* other : state.streams) {
    if (other->capture != graph) continue;
    other->capture = nullptr;
    other->capture_origin = false;
  }
  for (Event* event : state.events)
    if (event->capture == graph) event->capture = nullptr;
  return graph;
}

void record_event(Event& event, const Stream& stream) {
  event.capture = stream.capture;
  event.recorded = true;
  if (stream.capture) return;
  event.time = std::chrono::steady_clock::now();
}

void wait_event(Stream& stream, const Event& event) {
  if (event.capture && !stream.capture) stream.capture = event.capture;
}

GraphExec* instantiate(State& state, Graph& graph) {
  auto* exec = new GraphExec;
  exec->nodes = graph.nodes;
  state.graph_execs.insert(exec);
  return exec;
}

void run_nodes(const std::vector<std::shared_ptr<GraphNode>>& nodes) {
  for (const auto& node : nodes)
    if (node->run) node->run();
}

}  // namespace linnet::vgpu::driver
