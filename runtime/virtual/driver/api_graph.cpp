// Stream capture and graphs.
#include <algorithm>

#include "driver/boundary.h"
#include "driver/graph.h"
#include "driver/kernel_launch.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::driver;

VGPU_API CUresult cuStreamBeginCapture_v2(CUstream stream, int) {
  return guarded_context("cuStreamBeginCapture",
                         [&](State& state) { begin_capture(state, state.stream(stream)); });
}

VGPU_API CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return guarded_context("cuStreamEndCapture", [&](State& state) {
    required(graph, "graph") = end_capture(state, state.stream(stream));
  });
}

VGPU_API CUresult cuStreamIsCapturing(CUstream stream, int* status) {
  return guarded_context("cuStreamIsCapturing", [&](State& state) {
    required(status, "status") = state.stream(stream).capture ? 1 : 0;
  });
}

VGPU_API CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int* status, uint64_t* id,
                                            CUgraph* graph, const CUgraphNode** dependencies,
                                            size_t* count) {
  return guarded_context("cuStreamGetCaptureInfo", [&](State& state) {
    const Stream& target = state.stream(stream);
    required(status, "status") = target.capture ? 1 : 0;
    if (id) *id = reinterpret_cast<uint64_t>(target.capture);
    if (graph) *graph = target.capture;
    if (dependencies) *dependencies = nullptr;
    if (count) *count = 0;
  });
}

VGPU_API CUresult cuStreamGetCaptureInfo_v3(CUstream stream, int* status, uint64_t* id,
                                            CUgraph* graph, const CUgraphNode** dependencies,
                                            const void** edges, size_t* count) {
  if (edges) *edges = nullptr;
  return cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count);
}

VGPU_API CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  return guarded("cuThreadExchangeStreamCaptureMode", [&](State&) { required(mode, "mode") = 0; });
}

VGPU_API CUresult cuGraphCreate(CUgraph* graph, unsigned) {
  return guarded_device("cuGraphCreate", [&](State& state) {
    required(graph, "graph") = new Graph;
    state.graphs.insert(*graph);
  });
}

VGPU_API CUresult cuGraphDestroy(CUgraph graph) {
  return guarded_device("cuGraphDestroy", [&](State& state) {
    checked(state.graphs, graph, "graph");
    state.graphs.erase(graph);
    delete graph;
  });
}

// Nodes run in the order they were added: a node may only depend on nodes that exist.
VGPU_API CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode*,
                                          size_t, const CUDA_KERNEL_NODE_PARAMS* params) {
  return guarded_device("cuGraphAddKernelNode", [&](State& state) {
    checked(state.graphs, graph, "graph");
    required(params, "params");
    CUfunction function = params->func ? params->func : params->kern;
    LaunchRequest request =
        make_request(state, function, {params->gridDimX, params->gridDimY, params->gridDimZ},
                     {params->blockDimX, params->blockDimY, params->blockDimZ}, {1, 1, 1},
                     params->sharedMemBytes, params->kernelParams, params->extra);
    auto added = std::make_shared<GraphNode>();
    added->kind = NodeKind::Kernel;
    added->run = [&state, request = std::move(request)] { run_request(state, request); };
    required(node, "node") = added.get();
    graph->nodes.push_back(std::move(added));
  });
}

VGPU_API CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*,
                                      size_t) {
  return guarded_device("cuGraphAddEmptyNode", [&](State& state) {
    checked(state.graphs, graph, "graph");
    auto added = std::make_shared<GraphNode>();
    required(node, "node") = added.get();
    graph->nodes.push_back(std::move(added));
  });
}

VGPU_API CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return guarded_device("cuGraphGetNodes", [&](State& state) {
    checked(state.graphs, graph, "graph");
    const size_t room = nodes ? required(count, "count") : 0;
    for (size_t i = 0; i < std::min(room, graph->nodes.size()); ++i)
      nodes[i] = graph->nodes[i].get();
    required(count, "count") = graph->nodes.size();
  });
}

VGPU_API CUresult cuGraphNodeGetType(CUgraphNode node, int* type) {
  return guarded_device("cuGraphNodeGetType", [&](State&) {
    required(type, "type") = static_cast<int>(required(node, "node").kind);
  });
}

VGPU_API CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                              unsigned long long) {
  return guarded_device("cuGraphInstantiate", [&](State& state) {
    required(exec, "graphExec") = instantiate(state, checked(state.graphs, graph, "graph"));
  });
}

VGPU_API CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph,
                                               CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (params) {
    params->hErrNode_out = nullptr;
    params->result_out = 0;
  }
  return cuGraphInstantiateWithFlags(exec, graph, 0);
}

VGPU_API CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return guarded_context("cuGraphLaunch", [&](State& state) {
    state.check_failure();
    const auto nodes = checked(state.graph_execs, exec, "graph").nodes;
    state.submit(stream, NodeKind::Empty, [nodes] { run_nodes(nodes); });
  });
}

VGPU_API CUresult cuGraphUpload(CUgraphExec exec, CUstream) {
  return guarded_context("cuGraphUpload",
                         [&](State& state) { checked(state.graph_execs, exec, "graph"); });
}

VGPU_API CUresult cuGraphExecDestroy(CUgraphExec exec) {
  return guarded_device("cuGraphExecDestroy", [&](State& state) {
    checked(state.graph_execs, exec, "graph");
    state.graph_execs.erase(exec);
    delete exec;
  });
}
