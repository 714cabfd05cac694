// `stampmill bench serve`: load on a server, closed loop (each client sends when it was answered)
// or open loop (requests begin at a fixed rate, and wait is counted from when each should have
// begun).
#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "server/cli/bench.h"
#include "server/cli/command_line.h"
#include "server/cli/commands.h"
#include "server/cli/load_client.h"
#include "server/cli/table.h"
#include "server/cli/text_load.h"
#include "server/cli/timing.h"

namespace stampmill {
namespace {

struct BenchServeFlags {
  std::string url;  // empty: this machine, the protocol's default port
  std::string protocol = "grpc";
  LoadTarget target;
  std::vector<std::string> shapes;  // NAME:2,3
  int64_t batch = 1;
  int32_t concurrency = 1;
  double rate = 0;  // requests a second; 0: closed loop
  int64_t requests = 0;
  double seconds = 0;
  // Requests of each client that are not counted; negative: 10, of texts 1.
  int64_t warmup = -1;
  TextLoad texts;
  TableFormat format;
};

absl::StatusOr<std::map<std::string, std::vector<int64_t>>> ParseShapes(
    const std::vector<std::string>& texts) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const std::string& text : texts) {
    const size_t colon = text.rfind(':');
    std::vector<int64_t> dims;
    bool good = colon != std::string::npos && colon > 0;
    for (absl::string_view word :
         absl::StrSplit(good ? absl::string_view(text).substr(colon + 1) : "", ',')) {
      int64_t dim = 0;
      good &= absl::SimpleAtoi(word, &dim) && dim >= 0;
      dims.push_back(dim);
    }
    if (!good) {
      return absl::InvalidArgumentError(
          absl::StrCat("--shape: got '", text, "', limit NAME:DIM,DIM,..."));
    }
    shapes[text.substr(0, colon)] = std::move(dims);
  }
  return shapes;
}

// What the clients share: which request is next, and when all is over.
struct Load {
  int64_t start_nanos = 0;
  int64_t end_nanos = kNoDeadline;
  int64_t requests = 0;        // 0: no limit
  double nanos_a_request = 0;  // open loop
  std::atomic<int64_t> next{0};

  // When the next request is to begin; none: all is over.
  std::optional<int64_t> NextDue() {
    const int64_t number = next.fetch_add(1, std::memory_order_relaxed);
    if (requests > 0 && number >= requests) return std::nullopt;
    const int64_t due =
        nanos_a_request > 0
            ? start_nanos + static_cast<int64_t>(static_cast<double>(number) * nanos_a_request)
            : RealClock().NowNanos();
    if (due >= end_nanos) return std::nullopt;
    return due;
  }
};

// The clients of one thread and what they saw.
struct Clients {
  std::unique_ptr<LoadLoop> loop;
  std::vector<std::unique_ptr<LoadClient>> clients;  // gone before the loop
  std::vector<int64_t> latencies;
  int64_t errors = 0;
  std::string first_error;
};

void RunClients(Clients& all, Load& load) {
  absl::flat_hash_map<const LoadClient*, int64_t> begun;
  std::vector<LoadClient*> idle;
  for (const auto& client : all.clients) idle.push_back(client.get());
  std::optional<int64_t> due;  // of the next request, once a client is free for it
  bool over = false;
  while (!over || !begun.empty()) {
    if (!over && !idle.empty() && !due.has_value()) {
      due = load.NextDue();
      over = !due.has_value();
      continue;
    }
    if (due.has_value() && *due <= RealClock().NowNanos()) {
      begun[idle.back()] = *std::exchange(due, std::nullopt);
      idle.back()->Begin();
      idle.pop_back();
      continue;
    }
    const auto answered = all.loop->Next(due.value_or(kNoDeadline));
    if (!answered.has_value()) continue;
    const auto begin = begun.find(answered->client);
    if (answered->status.ok()) {
      all.latencies.push_back(RealClock().NowNanos() - begin->second);
    } else if (all.errors++ == 0) {
      all.first_error = answered->status.ToString();
    }
    begun.erase(begin);
    idle.push_back(answered->client);
  }
}

// One inference after the other, not counted.
absl::Status WarmUp(Clients& all, int64_t requests) {
  for (const auto& client : all.clients) {
    for (int64_t n = 0; n < requests; ++n) {
      client->Begin();
      RETURN_IF_ERROR(all.loop->Next(kNoDeadline)->status);
    }
  }
  return absl::OkStatus();
}

// The clients, spread over so few threads that most of the machine is the server's.
absl::StatusOr<std::vector<Clients>> ConnectAll(const BenchServeFlags& flags) {
  ASSIGN_OR_RETURN(const auto shapes, ParseShapes(flags.shapes));
  const auto threads = static_cast<int32_t>(std::thread::hardware_concurrency() / 4);
  std::vector<Clients> all(static_cast<size_t>(std::clamp(threads, 1, flags.concurrency)));
  std::vector<LoadInput> inputs;
  for (int32_t i = 0; i < flags.concurrency; ++i) {
    Clients& some = all[static_cast<size_t>(i) % all.size()];
    if (some.loop == nullptr) {
      some.loop = flags.protocol == "http" ? NewHttpLoadLoop() : NewGrpcLoadLoop();
    }
    ASSIGN_OR_RETURN(std::unique_ptr<LoadClient> client, some.loop->Connect(flags.target));
    if (i == 0) {
      ASSIGN_OR_RETURN(inputs, client->DescribeInputs());
      RETURN_IF_ERROR(FillInputs(shapes, flags.batch, inputs));
    }
    RETURN_IF_ERROR(client->Prepare(inputs));
    some.clients.push_back(std::move(client));
  }
  for (Clients& some : all) RETURN_IF_ERROR(WarmUp(some, flags.warmup < 0 ? 10 : flags.warmup));
  return all;
}

absl::StatusOr<Table> Measure(const BenchServeFlags& flags) {
  ASSIGN_OR_RETURN(std::vector<Clients> clients, ConnectAll(flags));
  Load load;
  load.requests = flags.requests;
  load.nanos_a_request = flags.rate > 0 ? 1e9 / flags.rate : 0;
  load.start_nanos = RealClock().NowNanos();
  if (flags.seconds > 0)
    load.end_nanos = load.start_nanos + static_cast<int64_t>(flags.seconds * 1e9);
  std::vector<std::thread> threads;
  for (Clients& some : clients) threads.emplace_back([&] { RunClients(some, load); });
  for (std::thread& thread : threads) thread.join();
  const double seconds = static_cast<double>(RealClock().NowNanos() - load.start_nanos) * 1e-9;
  std::vector<int64_t> all;
  int64_t errors = 0;
  std::string first_error;
  for (const Clients& some : clients) {
    all.insert(all.end(), some.latencies.begin(), some.latencies.end());
    errors += some.errors;
    if (first_error.empty()) first_error = some.first_error;
  }
  if (all.empty()) {
    return absl::UnavailableError(
        absl::StrCat("no request was answered", first_error.empty() ? "" : ": ", first_error));
  }
  double sum = 0;
  for (const int64_t latency : all) sum += static_cast<double>(latency);
  const auto count = static_cast<double>(all.size());
  Table table({"protocol", "model", "batch", "concurrency", "rate", "requests", "errors", "seconds",
               "requests_per_second", "mean_us", "p50_us", "p90_us", "p99_us", "max_us"});
  table.Add({flags.protocol, flags.target.model, flags.batch, flags.concurrency, flags.rate,
             all.size(), errors, seconds, count / seconds, sum / count * 1e-3,
             Percentile(all, 0.5) * 1e-3, Percentile(all, 0.9) * 1e-3, Percentile(all, 0.99) * 1e-3,
             Percentile(all, 1) * 1e-3});
  if (errors > 0) fprintf(stderr, "stampmill: first error: %s\n", first_error.c_str());
  return table;
}

void AddTextOptions(CLI::App& app, TextLoad& texts) {
  app.add_option("--prompt-words", texts.prompt_words,
                 "words of one letter in a prompt (OpenAI), mostly a token each")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-tokens", texts.tokens_max, "tokens of an answer (OpenAI)")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--seed", texts.seed,
                 "of prompts and arrivals (OpenAI); a run with the same one finds the prompts of "
                 "the one before in caches (default: another each time)");
}

absl::StatusOr<Table> MeasureTexts(const BenchServeFlags& flags) {
  TextLoad load = flags.texts;
  load.target = flags.target;
  load.chat = flags.protocol == "openai-chat";
  load.concurrency = flags.concurrency;
  load.rate = flags.rate;
  load.requests = flags.requests;
  load.seconds = flags.seconds;
  load.warmup = flags.warmup < 0 ? 1 : flags.warmup;
  return MeasureTexts(load);
}

}  // namespace

int RunBenchServe(int argc, char** argv) {
  BenchServeFlags flags;
  flags.texts.seed = static_cast<uint64_t>(RealClock().NowNanos());
  CommandLine line("bench serve",
                   "load on a server that speaks KServe v2, or the OpenAI API for texts");
  CLI::App& app = line.app();
  app.add_option("--url", flags.url,
                 "HOST:PORT of the server (default: 127.0.0.1:8000, with gRPC :8001)");
  app.add_option("--protocol", flags.protocol, "of that port")
      ->check(CLI::IsMember({"grpc", "http", "openai", "openai-chat"}))
      ->capture_default_str();
  app.add_option("--model", flags.target.model, "name of the model")->required();
  app.add_option("--model-version", flags.target.version, "default: the newest");
  app.add_option("--shape", flags.shapes, "NAME:DIM,DIM,... of an input; repeatable")
      ->take_all()
      ->allow_extra_args(false);
  app.add_option("--batch", flags.batch, "first dim of inputs that leave it open")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--concurrency", flags.concurrency, "clients, each with a connection")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--rate", flags.rate,
                 "requests a second, whatever the answers (open loop); texts come at random, as a "
                 "Poisson process")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--requests", flags.requests, "in all")->check(CLI::NonNegativeNumber);
  app.add_option("--seconds", flags.seconds, "how long (default: 5 without --requests)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--warmup", flags.warmup,
                 "requests of each client before it counts (default: 10, of texts 1)")
      ->check(CLI::NonNegativeNumber);
  AddTextOptions(app, flags.texts);
  AddTableFormat(app, flags.format);
  if (const std::optional<int> exit = line.Parse(argc, argv)) return *exit;
  if (flags.requests == 0 && flags.seconds == 0) flags.seconds = 5;
  if (flags.url.empty()) {
    flags.url = flags.protocol == "grpc" ? "127.0.0.1:8001" : "127.0.0.1:8000";
  }
  if (const absl::Status status = ParseLoadUrl(flags.url, flags.target); !status.ok()) {
    return FailUsage(absl::string_view(status.message()));
  }
  const bool texts = absl::StartsWith(flags.protocol, "openai");
  return PrintTable(texts ? MeasureTexts(flags) : Measure(flags), flags.format);
}

}  // namespace stampmill
