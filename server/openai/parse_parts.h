// Internal to requests: parts that more than one kind of request has.
#pragma once

#include "server/openai/fields.h"
#include "server/openai/requests.h"

namespace stampmill {

// All of GenerationOptions but logprobs, which the two APIs write differently.
void ReadGenerationOptions(JsonFields& fields, GenerationOptions& options);
// What has a neutral value and is refused with any other.
void RefuseUnsupported(JsonFields& fields);
void ReadConversation(JsonFields& fields, Conversation& conversation);

}  // namespace stampmill
