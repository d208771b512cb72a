// Stream capture: what is put into a capturing stream becomes a node of a graph. REQUIRES Lock().
#pragma once

#include "tests/standin/runtime.h"

namespace gaccd::standin {

// The work as a node after what the stream has captured so far. An invalid capture takes no more.
cudaError_t AddNode(Stream& stream, Node node);
// The capture cannot be ended well any more; gives back `why`.
cudaError_t Invalidate(Capture& capture, cudaError_t why);
// The stream's next node also comes after these; a stream that was not capturing joins the capture.
cudaError_t JoinCapture(Stream& stream, const Event& event);

// How this thread minds the captures of others; cudaStreamCaptureModeGlobal at first.
cudaStreamCaptureMode& ModeOfThisThread();

Capture* BeginCapture(Stream& stream, cudaStreamCaptureMode mode);
// Checks how the capture may end, ends it in any case, and gives its graph in `graph` when all is
// well.
cudaError_t EndCapture(Stream& stream, Graph** graph);

}  // namespace gaccd::standin
