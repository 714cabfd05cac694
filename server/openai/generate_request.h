// A request of Triton's generate extension, as users of its vLLM backend write it: text_input and
// parameters, in an object of that name or beside it, or as sampling_parameters, an object or the
// text of one. What comes out is a request for a completion.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/openai/requests.h"

namespace stampmill {

struct GenerateRequest {
  // One prompt, one answer. Its `stream`: an event for each piece of the text. Its `echo`, unless
  // exclude_input_in_output says otherwise: whenever it is not streamed.
  CompletionRequest completion;
  std::string id;  // told in the answer; empty: not given
};

// `events`: the answer is a stream of events (generate_stream), `stream` false makes it one event.
// INVALID_ARGUMENT names what is wrong, not known or not offered: server/openai/errors.h.
absl::StatusOr<GenerateRequest> ParseGenerateRequest(absl::string_view body, bool events);

}  // namespace stampmill
