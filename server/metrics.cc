#include "server/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "runtime/generation_statistics.h"
#include "runtime/language_engine.h"
#include "runtime/language_model.h"
#include "server/answers.h"

namespace stampmill {

constexpr auto kCounter = prometheus::MetricType::Counter;
constexpr auto kGauge = prometheus::MetricType::Gauge;
constexpr auto kHistogram = prometheus::MetricType::Histogram;

using Labels = std::initializer_list<std::pair<absl::string_view, absl::string_view>>;

// Collects families; a family's head comes before its samples.
class Metrics::Writer {
 public:
  void Family(absl::string_view name, prometheus::MetricType type, absl::string_view help) {
    families_.push_back(
        {.name = std::string(name), .help = std::string(help), .type = type, .metric = {}});
  }

  void Sample(Labels labels, double value) {
    prometheus::ClientMetric& metric = families_.back().metric.emplace_back();
    for (const auto& [label, text] : labels) {
      metric.label.push_back({.name = std::string(label), .value = std::string(text)});
    }
    // The type says which of the two is written.
    metric.counter.value = metric.gauge.value = value;
  }

  // Values are written `scale` times as great.
  void HistogramSample(Labels labels, const Histogram& histogram, double scale) {
    Sample(labels, 0);
    prometheus::ClientMetric::Histogram& sample = families_.back().metric.back().histogram;
    const Histogram::Snapshot snapshot = histogram.Read();
    for (size_t i = 0; i < snapshot.counts.size(); ++i) {
      sample.sample_count += snapshot.counts[i];
      if (i == histogram.bounds().size()) break;
      prometheus::ClientMetric::Bucket& bucket = sample.bucket.emplace_back();
      bucket.cumulative_count = sample.sample_count;
      bucket.upper_bound = static_cast<double>(histogram.bounds()[i]) * scale;
    }
    sample.sample_sum = static_cast<double>(snapshot.sum) * scale;
  }

  void Single(absl::string_view name, prometheus::MetricType type, absl::string_view help,
              double value) {
    Family(name, type, help);
    Sample({}, value);
  }

  std::string Take() { return prometheus::TextSerializer().Serialize(families_); }

 private:
  std::vector<prometheus::MetricFamily> families_;
};

namespace {

struct ModelSample {
  std::string name, version;
  StatisticsSnapshot statistics;
};

std::vector<ModelSample> SampleModels(const Serving& serving) {
  std::vector<ModelSample> samples;
  absl::StatusOr<std::vector<ModelPin>> pins = serving.repository().PinAll("");
  if (!pins.ok()) return samples;
  for (const ModelPin& pin : *pins) {
    samples.push_back({.name = pin->name(),
                       .version = absl::StrCat(pin->version()),
                       .statistics = pin->statistics().Snapshot()});
  }
  return samples;
}

struct HistogramName {
  absl::string_view name;
  Histogram GenerationStatistics::* histogram;
  double scale;
  absl::string_view help;
};
using S = GenerationStatistics;
// Two names mean the same: dashboards know the older one.
constexpr HistogramName kHistograms[] = {
    {"vllm:time_to_first_token_seconds", &S::time_to_first_token, 1e-9,
     "From a text's arrival to its first token"},
    {"vllm:inter_token_latency_seconds", &S::inter_token_latency, 1e-9,
     "Between two tokens of a text"},
    {"vllm:time_per_output_token_seconds", &S::inter_token_latency, 1e-9,
     "Between two tokens of a text"},
    {"vllm:request_time_per_output_token_seconds", &S::time_per_output_token, 1e-9,
     "The same, on average over a text"},
    {"vllm:e2e_request_latency_seconds", &S::e2e_latency, 1e-9, "From a text's arrival to its end"},
    {"vllm:request_queue_time_seconds", &S::queue_time, 1e-9, "Until a text is in a step"},
    {"vllm:request_inference_time_seconds", &S::inference_time, 1e-9,
     "From a text's first step to its last token"},
    {"vllm:request_prefill_time_seconds", &S::prefill_time, 1e-9,
     "From a text's first step to its first token"},
    {"vllm:request_decode_time_seconds", &S::decode_time, 1e-9,
     "From a text's first token to its last"},
    {"vllm:request_prompt_tokens", &S::prompt_tokens, 1, "Tokens of a prompt"},
    {"vllm:request_generation_tokens", &S::generation_tokens, 1, "Tokens of an answer"},
    {"vllm:request_params_max_tokens", &S::tokens_max, 1, "Tokens that an answer may have"},
    {"vllm:request_params_n", &S::texts_wanted, 1, "Answers to one prompt"},
    {"vllm:request_max_num_generation_tokens", &S::longest_tokens, 1,
     "Tokens of the longest answer to one prompt"},
    {"vllm:iteration_tokens_total", &S::iteration_tokens, 1, "Tokens of a step"},
};

// What the engine of a language model counts.
using Counters = LanguageEngineCounters;
struct EngineNumber {
  const char* name;
  prometheus::MetricType type;
  const char* help;
  double (*value)(const Counters&);
};
template <auto Field>
double Of(const Counters& c) {
  return static_cast<double>(c.*Field);
}
template <auto Field>
double OfSequences(const Counters& c) {
  return static_cast<double>(c.sequences.*Field);
}
constexpr EngineNumber kEngineNumbers[] = {
    {"vllm:num_requests_running", kGauge, "Texts that are in steps", Of<&Counters::running>},
    {"vllm:num_requests_waiting", kGauge, "Texts that wait to be", Of<&Counters::waiting>},
    {"vllm:kv_cache_usage_perc", kGauge, "Share of the cache's blocks in use, 1 is all",
     [](const Counters& c) {
       return c.blocks_total == 0 ? 0.0 : static_cast<double>(c.blocks_used) / c.blocks_total;
     }},
    {"vllm:num_preemptions_total", kCounter, "Texts whose blocks were taken for others",
     OfSequences<&SequenceCounters::preemptions>},
    {"vllm:prefix_cache_queries_total", kCounter, "Tokens looked for in the cache",
     OfSequences<&SequenceCounters::prefix_query_tokens>},
    {"vllm:prefix_cache_hits_total", kCounter, "Tokens found in the cache",
     OfSequences<&SequenceCounters::prefix_hit_tokens>},
    {"vllm:prompt_tokens_total", kCounter, "Tokens of prompts computed",
     Of<&Counters::prompt_tokens>},
    {"vllm:generation_tokens_total", kCounter, "Tokens generated", Of<&Counters::generated_tokens>},
    {"vllm:spec_decode_num_drafts_total", kCounter, "Guesses of how texts go on",
     Of<&Counters::drafts>},
    {"vllm:spec_decode_num_draft_tokens_total", kCounter, "Tokens in them",
     Of<&Counters::draft_tokens>},
    {"vllm:spec_decode_num_accepted_tokens_total", kCounter, "Those of them that held",
     Of<&Counters::accepted_tokens>},
};

double Number(uint64_t value) { return static_cast<double>(value); }
double Micros(const DurationCount& duration) { return Number(duration.nanos / 1000); }

// The value in kB of a line of /proc/meminfo, in bytes.
double MemoryInfoBytes(absl::string_view text, absl::string_view name) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, name) || !absl::ConsumePrefix(&line, ":")) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint64_t kilobytes = 0;
    if (!words.empty() && absl::SimpleAtoi(words[0], &kilobytes)) return Number(kilobytes * 1024);
  }
  return 0;
}

double ResidentBytes() {
  const absl::StatusOr<std::string> text = ReadFile("/proc/self/statm");
  if (!text.ok()) return 0;
  const std::vector<absl::string_view> words = absl::StrSplit(*text, ' ');
  uint64_t pages = 0;
  if (words.size() < 2 || !absl::SimpleAtoi(words[1], &pages)) return 0;
  return Number(pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
}

double ProcessCpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

Metrics::Metrics(MetricsSources sources) : sources_(std::move(sources)) { CpuUtilization(); }

std::string Metrics::Text() {
  Writer writer;
  if (sources_.serving != nullptr) WriteModels(writer);
  if (sources_.language != nullptr) WriteLanguageModels(writer);
  WriteHost(writer);
  WriteServer(writer);
  return writer.Take();
}

void Metrics::WriteLanguageModels(Writer& writer) {
  struct Sample {
    std::string name;
    LanguageEngineCounters counters;
    const GenerationStatistics* statistics = nullptr;
  };
  std::vector<Sample> models;
  for (LanguageModel* model : sources_.language->List()) {
    models.push_back({.name = model->name(),
                      .counters = model->engine().counters(),
                      .statistics = &model->engine().statistics()});
  }
  if (models.empty()) return;
  for (const EngineNumber& each : kEngineNumbers) {
    writer.Family(each.name, each.type, each.help);
    for (const Sample& model : models) {
      writer.Sample({{"model_name", model.name}, {"engine", "0"}}, each.value(model.counters));
    }
  }
  writer.Family("vllm:cache_config_info", kGauge, "The cache of keys and values");
  for (const Sample& model : models) {
    writer.Sample({{"model_name", model.name},
                   {"engine", "0"},
                   {"block_size", absl::StrCat(kBlockTokens)},
                   {"num_gpu_blocks", absl::StrCat(model.counters.blocks_total)}},
                  1);
  }
  writer.Family("vllm:request_success_total", kCounter, "Texts that ended, by how");
  for (const Sample& model : models) {
    for (int i = 0; i < kTextOutcomeCount; ++i) {
      const auto outcome = static_cast<TextOutcome>(i);
      writer.Sample(
          {{"model_name", model.name}, {"engine", "0"}, {"finished_reason", Name(outcome)}},
          Number(model.statistics->texts(outcome)));
    }
  }
  for (const HistogramName& each : kHistograms) {
    writer.Family(each.name, kHistogram, each.help);
    for (const Sample& model : models) {
      writer.HistogramSample({{"model_name", model.name}, {"engine", "0"}},
                             model.statistics->*each.histogram, each.scale);
    }
  }
}

void Metrics::WriteModels(Writer& writer) {
  const std::vector<ModelSample> models = SampleModels(*sources_.serving);
  const auto family = [&](absl::string_view name, prometheus::MetricType type,
                          absl::string_view help, const auto& value) {
    writer.Family(name, type, help);
    for (const ModelSample& model : models) {
      writer.Sample({{"model", model.name}, {"version", model.version}}, value(model.statistics));
    }
  };
  using Snapshot = StatisticsSnapshot;
  family("nv_inference_request_success", kCounter, "Number of successful inference requests",
         [](const Snapshot& s) { return Number(s.success.count); });
  writer.Family("nv_inference_request_failure", kCounter, "Number of failed inference requests");
  for (const ModelSample& model : models) {
    for (int reason = 0; reason < kFailureReasonCount; ++reason) {
      writer.Sample({{"model", model.name},
                     {"version", model.version},
                     {"reason", Name(static_cast<FailureReason>(reason))}},
                    Number(model.statistics.failures[reason]));
    }
  }
  family("nv_inference_count", kCounter, "Number of inferences performed (rows of batches)",
         [](const Snapshot& s) { return Number(s.inference_count); });
  family("nv_inference_exec_count", kCounter, "Number of model executions performed",
         [](const Snapshot& s) { return Number(s.execution_count); });
  family("nv_inference_pending_request_count", kGauge, "Requests that wait for execution",
         [](const Snapshot& s) { return Number(s.pending_count); });
  family("nv_inference_request_duration_us", kCounter, "Cumulative request time in microseconds",
         [](const Snapshot& s) { return Micros(s.success); });
  family("nv_inference_queue_duration_us", kCounter, "Cumulative queue time in microseconds",
         [](const Snapshot& s) { return Micros(s.queue); });
  family("nv_inference_compute_input_duration_us", kCounter,
         "Cumulative time of preparing inputs in microseconds",
         [](const Snapshot& s) { return Micros(s.compute_input); });
  family("nv_inference_compute_infer_duration_us", kCounter,
         "Cumulative time of execution in microseconds",
         [](const Snapshot& s) { return Micros(s.compute_infer); });
  family("nv_inference_compute_output_duration_us", kCounter,
         "Cumulative time of handling outputs in microseconds",
         [](const Snapshot& s) { return Micros(s.compute_output); });
  family("nv_model_load_duration_secs", kGauge, "Model load time in seconds",
         [](const Snapshot& s) { return static_cast<double>(s.load_nanos) * 1e-9; });
  family("stampmill_bytes_copied_total", kCounter, "Bytes copied to gather and scatter batches",
         [](const Snapshot& s) { return Number(s.bytes_copied); });
}

void Metrics::WriteHost(Writer& writer) {
  writer.Single("nv_cpu_utilization", kGauge, "CPU utilization rate [0.0 - 1.0]", CpuUtilization());
  const absl::StatusOr<std::string> memory = ReadFile("/proc/meminfo");
  if (memory.ok()) {
    const double total = MemoryInfoBytes(*memory, "MemTotal");
    writer.Single("nv_cpu_memory_total_bytes", kGauge, "CPU total memory (RAM), in bytes", total);
    writer.Single("nv_cpu_memory_used_bytes", kGauge, "CPU used memory (RAM), in bytes",
                  total - MemoryInfoBytes(*memory, "MemAvailable"));
  }
  writer.Single("process_resident_memory_bytes", kGauge, "Resident memory size in bytes",
                ResidentBytes());
  writer.Single("process_cpu_seconds_total", kCounter,
                "Total user and system CPU time spent in seconds", ProcessCpuSeconds());
}

void Metrics::WriteServer(Writer& writer) {
  writer.Family("stampmill_build_info", kGauge, "Always 1; the version is a label");
  writer.Sample({{"version", kServerVersion}}, 1);
  if (sources_.serving != nullptr) {
    const Serving& serving = *sources_.serving;
    writer.Single("nv_pinned_memory_pool_total_bytes", kGauge, "Size of the tensor pool",
                  Number(serving.pool().size_bytes()));
    writer.Single("nv_pinned_memory_pool_used_bytes", kGauge, "Bytes of the tensor pool in use",
                  Number(serving.pool().used_bytes()));
    writer.Single("stampmill_ready", kGauge, "1 when the daemon is ready", serving.IsReady());
    writer.Single("stampmill_requests_held", kGauge, "Request slots in use",
                  serving.requests().in_use());
    writer.Single("stampmill_requests_held_limit", kGauge, "Request slots",
                  serving.requests().capacity());
    writer.Single("stampmill_engine_requests_in_flight", kGauge,
                  "Requests that the engine has taken and not ended",
                  static_cast<double>(serving.engine().in_flight()));
  }
  if (sources_.http || sources_.grpc) {
    const HttpServerCounters http = sources_.http ? sources_.http() : HttpServerCounters();
    const ConnectionCounters grpc = sources_.grpc ? sources_.grpc() : ConnectionCounters();
    writer.Family("stampmill_connections", kGauge, "Open connections");
    writer.Sample({{"protocol", "http"}}, static_cast<double>(http.connections));
    writer.Sample({{"protocol", "grpc"}}, static_cast<double>(grpc.connections));
    writer.Family("stampmill_connections_refused_total", kCounter,
                  "Connections refused beyond the limit or for want of descriptors");
    writer.Sample({{"protocol", "http"}}, static_cast<double>(http.connections_refused));
    writer.Sample({{"protocol", "grpc"}}, static_cast<double>(grpc.connections_refused));
    writer.Family("stampmill_slow_clients_closed_total", kCounter,
                  "HTTP connections closed, or gRPC calls cancelled, because the client did not "
                  "read or write on");
    writer.Sample({{"protocol", "http"}}, static_cast<double>(http.clients_too_slow));
    writer.Sample({{"protocol", "grpc"}}, static_cast<double>(grpc.clients_too_slow));
  }
  if (sources_.inflight != nullptr) {
    writer.Single("stampmill_inflight_bytes", kGauge, "Bytes of requests being read or answered",
                  Number(sources_.inflight->used_bytes()));
    writer.Single("stampmill_inflight_limit_bytes", kGauge, "Limit of stampmill_inflight_bytes",
                  Number(sources_.inflight->bytes_max()));
  }
  if (sources_.memory != nullptr) {
    writer.Single("stampmill_memory_budget_bytes", kGauge, "Memory that models may reserve",
                  Number(sources_.memory->budget_bytes()));
    writer.Single("stampmill_memory_reserved_bytes", kGauge, "Memory that models have reserved",
                  Number(sources_.memory->reserved_bytes()));
  }
  if (!sources_.cache) return;
  const CacheCounters cache = sources_.cache();
  writer.Single("stampmill_kernel_cache_hits_total", kCounter, "Models found compiled",
                static_cast<double>(cache.hits));
  writer.Single("stampmill_kernel_cache_misses_total", kCounter, "Models not found compiled",
                static_cast<double>(cache.misses));
  writer.Single("stampmill_kernel_cache_corrupt_total", kCounter,
                "Cache objects and records refused as damaged",
                static_cast<double>(cache.corrupt_refused));
  writer.Single("stampmill_kernel_cache_write_failures_total", kCounter,
                "Cache objects and records that could not be written",
                static_cast<double>(cache.write_failures));
}

double Metrics::CpuUtilization() {
  const absl::StatusOr<std::string> text = ReadFile("/proc/stat");
  if (!text.ok()) return 0;
  absl::string_view line = *text;
  line = line.substr(0, line.find('\n'));
  if (!absl::ConsumePrefix(&line, "cpu ")) return 0;
  // user nice system idle iowait irq softirq steal ...; guest time is part of user time.
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  uint64_t all = 0, idle = 0;
  for (size_t i = 0; i < words.size() && i < 8; ++i) {
    uint64_t ticks = 0;
    if (!absl::SimpleAtoi(words[i], &ticks)) return 0;
    all += ticks;
    if (i == 3 || i == 4) idle += ticks;
  }
  const absl::MutexLock lock(&mutex_);
  const uint64_t all_before = std::exchange(all_ticks_, all);
  const uint64_t busy_before = std::exchange(busy_ticks_, all - idle);
  if (all <= all_before || busy_ticks_ < busy_before) return 0;
  return Number(busy_ticks_ - busy_before) / Number(all - all_before);
}

}  // namespace stampmill
