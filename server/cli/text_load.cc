#include "server/cli/text_load.h"

#include <algorithm>
#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/waker.h"
#include "server/cli/timing.h"

namespace stampmill {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
namespace json = boost::json;
using boost::system::error_code;

// One text, as its client saw it. Times are RealClock's.
struct Outcome {
  absl::Status status;
  int64_t due = 0, first = 0, last = 0;
  std::vector<int64_t> gaps;  // between events with text
  int64_t prompt_tokens = 0, output_tokens = 0;
};

class TextClient {
 public:
  TextClient(const LoadTarget& target, absl::string_view path, asio::io_context& context,
             std::deque<TextClient*>& done)
      : target_(target), path_(path), context_(context), done_(done), socket_(context) {}

  // Begins a text, which joins `done` when it is over. REQUIRES: the one before has.
  void Begin(std::string body, int64_t due) {
    outcome = {};
    outcome.due = due;
    if (const absl::Status status = Connect(); !status.ok()) return End(status);
    request_ = http::request<http::string_body>(http::verb::post, std::string(path_), 11);
    request_.set(http::field::host, target_.host);
    request_.set(http::field::content_type, "application/json");
    request_.set(http::field::accept, "text/event-stream");
    request_.body() = std::move(body);
    request_.prepare_payload();
    text_.clear();
    parser_.emplace();
    parser_->body_limit(boost::none);
    http::async_write(socket_, request_, [this](const error_code& error, size_t) {
      if (error) return End(Failed("write to", error));
      Read();
    });
  }

  Outcome outcome;

 private:
  absl::Status Connect() {
    if (socket_.is_open()) return absl::OkStatus();
    error_code error;
    asio::ip::tcp::resolver resolver(context_);
    const auto endpoints = resolver.resolve(target_.host, absl::StrCat(target_.port), error);
    if (!error) asio::connect(socket_, endpoints, error);
    if (error) return Failed("connect", error);
    socket_.set_option(asio::ip::tcp::no_delay(true), error);
    buffer_.clear();
    return absl::OkStatus();
  }

  absl::Status Failed(absl::string_view what, const error_code& error) const {
    return absl::UnavailableError(
        absl::StrCat(what, " ", target_.host, ":", target_.port, ": ", error.message()));
  }

  void Read() {
    parser_->get().body().data = piece_.data();
    parser_->get().body().size = piece_.size();
    http::async_read_some(socket_, buffer_, *parser_,
                          [this](const error_code& error, size_t) { OnRead(error); });
  }

  void OnRead(const error_code& error) {
    if (error && error != http::error::need_buffer) return End(Failed("read from", error));
    if (parser_->is_header_done()) {
      text_.append(piece_.data(), piece_.size() - parser_->get().body().size);
      if (parser_->get().result_int() == 200) TakeEvents();
    }
    if (!parser_->is_done()) return Read();
    const int status = static_cast<int>(parser_->get().result_int());
    if (status != 200) {
      return End(absl::InternalError(absl::StrCat("HTTP ", status, ": ", text_)));
    }
    if (!parser_->get().keep_alive()) Close();
    if (outcome.status.ok() && outcome.first == 0) {
      return End(absl::InternalError("a stream without any text"));
    }
    End(outcome.status);
  }

  void TakeEvents() {
    size_t begin = 0;
    for (size_t end = text_.find('\n'); end != text_.npos; end = text_.find('\n', begin)) {
      absl::string_view line = absl::string_view(text_).substr(begin, end - begin);
      begin = end + 1;
      line = absl::StripSuffix(line, "\r");
      if (absl::ConsumePrefix(&line, "data:")) TakeEvent(absl::StripAsciiWhitespace(line));
    }
    text_.erase(0, begin);
  }

  void TakeEvent(absl::string_view data) {
    if (data == "[DONE]") return;
    error_code error;
    const json::value value = json::parse({data.data(), data.size()}, error);
    const json::object* event = value.if_object();
    if (error || event == nullptr) {
      outcome.status = absl::InternalError(absl::StrCat("an event that is no object: ", data));
      return;
    }
    if (const json::value* told = event->if_contains("error"); told != nullptr) {
      outcome.status = absl::InternalError(absl::StrCat("the stream failed: ", data));
      return;
    }
    if (HasText(*event)) {
      const int64_t now = RealClock().NowNanos();
      if (outcome.first == 0) {
        outcome.first = now;
      } else {
        outcome.gaps.push_back(now - outcome.last);
      }
      outcome.last = now;
    }
    const json::value* usage = event->if_contains("usage");
    if (usage == nullptr || !usage->is_object()) return;
    outcome.prompt_tokens = Count(usage->get_object(), "prompt_tokens");
    outcome.output_tokens = Count(usage->get_object(), "completion_tokens");
  }

  static int64_t Count(const json::object& usage, absl::string_view name) {
    const json::value* value = usage.if_contains({name.data(), name.size()});
    return value != nullptr && value->is_int64() ? value->get_int64() : 0;
  }

  static bool HasText(const json::object& event) {
    const json::value* choices = event.if_contains("choices");
    const json::array* list = choices == nullptr ? nullptr : choices->if_array();
    if (list == nullptr || list->empty() || !list->front().is_object()) return false;
    const json::object* choice = &list->front().get_object();
    if (const json::value* delta = choice->if_contains("delta"); delta != nullptr) {
      choice = delta->if_object();
      if (choice == nullptr) return false;
    }
    for (const char* name : {"text", "content", "reasoning_content"}) {
      const json::value* text = choice->if_contains(name);
      if (text != nullptr && text->is_string() && !text->get_string().empty()) return true;
    }
    return false;
  }

  void Close() {
    error_code ignored;
    socket_.close(ignored);
  }

  void End(absl::Status status) {
    if (!status.ok()) Close();
    outcome.status = std::move(status);
    if (outcome.output_tokens == 0 && outcome.first != 0) {
      // The server does not count: as if each event were a token.
      outcome.output_tokens = static_cast<int64_t>(outcome.gaps.size()) + 1;
    }
    done_.push_back(this);
  }

  const LoadTarget& target_;
  const std::string path_;
  asio::io_context& context_;
  std::deque<TextClient*>& done_;
  asio::ip::tcp::socket socket_;
  boost::beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  std::optional<http::response_parser<http::buffer_body>> parser_;
  std::array<char, 16384> piece_;
  std::string text_;  // read and not yet looked at
};

class Runner {
 public:
  explicit Runner(const TextLoad& load) : load_(load), random_(load.seed) {
    const char* path = load.chat ? "/v1/chat/completions" : "/v1/completions";
    for (int32_t i = 0; i < load.concurrency; ++i) {
      clients_.push_back(std::make_unique<TextClient>(load_.target, path, context_, done_));
      idle_.push_back(clients_.back().get());
    }
  }

  absl::Status WarmUp() {
    if (load_.warmup == 0) return absl::OkStatus();
    Run(load_.warmup * load_.concurrency, 0, 0);
    for (const Outcome& outcome : outcomes_) RETURN_IF_ERROR(outcome.status);
    outcomes_.clear();
    return absl::OkStatus();
  }

  // Seconds that it took.
  double Measure() { return Run(load_.requests, load_.seconds, load_.rate); }
  std::vector<Outcome>& outcomes() { return outcomes_; }

 private:
  double Run(int64_t requests, double seconds, double rate) {
    const int64_t start = RealClock().NowNanos();
    const int64_t end = seconds > 0 ? start + static_cast<int64_t>(seconds * 1e9) : kNoDeadline;
    std::exponential_distribution<double> gap(rate > 0 ? rate : 1);
    int64_t begun = 0;
    double due_seconds = 0;
    int64_t due = start;
    bool over = false;
    while (!over || idle_.size() < clients_.size()) {
      const int64_t now = RealClock().NowNanos();
      over = over || (requests > 0 && begun == requests) || std::max(due, now) >= end;
      if (!over && !idle_.empty() && due <= now) {
        TextClient* const client = idle_.back();
        idle_.pop_back();
        client->Begin(Body(), rate > 0 ? due : now);
        ++begun;
        due_seconds += rate > 0 ? gap(random_) : 0;
        due = start + static_cast<int64_t>(due_seconds * 1e9);
      } else if (done_.empty()) {
        const bool waits_for_time = !over && !idle_.empty();
        const std::chrono::steady_clock::time_point until{
            std::chrono::nanoseconds(waits_for_time ? due : std::min(end, now + 1'000'000'000))};
        if (context_.stopped()) context_.restart();
        // Without work it returns at once, and then there is only time to wait for.
        if (idle_.size() < clients_.size()) {
          context_.run_one_until(over ? std::chrono::steady_clock::time_point::max() : until);
        } else if (waits_for_time) {
          Waker never;
          RealClock().WaitUntil(never, never.epoch(), due);
        }
      }
      while (!done_.empty()) {
        outcomes_.push_back(std::move(done_.front()->outcome));
        idle_.push_back(done_.front());
        done_.pop_front();
      }
    }
    return static_cast<double>(RealClock().NowNanos() - start) * 1e-9;
  }

  std::string Body() {
    std::string prompt;
    for (int32_t i = 0; i < load_.prompt_words; ++i) {
      if (i > 0) prompt += ' ';
      prompt += static_cast<char>('a' + random_() % 26);
    }
    json::object body = {{"model", load_.target.model},
                         {"max_tokens", load_.tokens_max},
                         {"temperature", 0},
                         {"ignore_eos", true},
                         {"stream", true},
                         {"stream_options", {{"include_usage", true}}}};
    if (load_.chat) {
      body["messages"] = json::array{{{"role", "user"}, {"content", prompt}}};
    } else {
      body["prompt"] = prompt;
    }
    return json::serialize(body);
  }

  const TextLoad load_;
  std::mt19937_64 random_;
  asio::io_context context_{1};
  std::deque<TextClient*> done_;
  std::vector<std::unique_ptr<TextClient>> clients_;
  std::vector<TextClient*> idle_;
  std::vector<Outcome> outcomes_;
};

// Milliseconds; null of none.
json::value At(const std::vector<int64_t>& nanos, double part) {
  if (nanos.empty()) return nullptr;
  return Percentile(nanos, part) * 1e-6;
}

json::value Mean(const std::vector<int64_t>& nanos) {
  if (nanos.empty()) return nullptr;
  return std::accumulate(nanos.begin(), nanos.end(), 0.0) * 1e-6 /
         static_cast<double>(nanos.size());
}

// What all texts together were.
struct Totals {
  std::vector<int64_t> ttft, itl, tpot, whole;  // nanoseconds
  int64_t errors = 0, prompt_tokens = 0, output_tokens = 0;
  absl::Status first_error;

  void Add(const Outcome& outcome) {
    if (!outcome.status.ok()) {
      if (errors++ == 0) first_error = outcome.status;
      return;
    }
    prompt_tokens += outcome.prompt_tokens;
    output_tokens += outcome.output_tokens;
    ttft.push_back(outcome.first - outcome.due);
    whole.push_back(outcome.last - outcome.due);
    itl.insert(itl.end(), outcome.gaps.begin(), outcome.gaps.end());
    if (outcome.output_tokens > 1) {
      tpot.push_back((outcome.last - outcome.first) / (outcome.output_tokens - 1));
    }
  }
};

// Columns of times, in milliseconds.
void AddTimes(absl::string_view name, const std::vector<int64_t>& nanos,
              std::vector<std::string>& columns, json::array& row) {
  const std::pair<const char*, json::value> times[] = {{"mean", Mean(nanos)},
                                                       {"p50", At(nanos, 0.5)},
                                                       {"p90", At(nanos, 0.9)},
                                                       {"p99", At(nanos, 0.99)}};
  for (const auto& [what, value] : times) {
    columns.push_back(absl::StrCat(name, "_", what, "_ms"));
    row.push_back(value);
  }
}

}  // namespace

absl::StatusOr<Table> MeasureTexts(const TextLoad& load) {
  Runner runner(load);
  RETURN_IF_ERROR(runner.WarmUp());
  const double seconds = runner.Measure();
  Totals all;
  for (const Outcome& outcome : runner.outcomes()) all.Add(outcome);
  if (all.ttft.empty()) {
    return absl::UnavailableError(absl::StrCat("no request was answered",
                                               all.first_error.ok() ? "" : ": ",
                                               absl::string_view(all.first_error.message())));
  }
  const auto a_second = [&](int64_t count) { return static_cast<double>(count) / seconds; };
  std::vector<std::string> columns = {"protocol",
                                      "model",
                                      "concurrency",
                                      "rate",
                                      "requests",
                                      "errors",
                                      "seconds",
                                      "requests_per_second",
                                      "prompt_tokens",
                                      "output_tokens",
                                      "output_tokens_per_second",
                                      "total_tokens_per_second"};
  json::array row = {load.chat ? "openai-chat" : "openai",
                     load.target.model,
                     load.concurrency,
                     load.rate,
                     all.ttft.size(),
                     all.errors,
                     seconds,
                     a_second(static_cast<int64_t>(all.ttft.size())),
                     all.prompt_tokens,
                     all.output_tokens,
                     a_second(all.output_tokens),
                     a_second(all.prompt_tokens + all.output_tokens)};
  AddTimes("ttft", all.ttft, columns, row);
  AddTimes("itl", all.itl, columns, row);
  AddTimes("tpot", all.tpot, columns, row);
  AddTimes("e2e", all.whole, columns, row);
  Table table(std::move(columns));
  table.Add(std::move(row));
  if (all.errors > 0) {
    fprintf(stderr, "stampmill: first error: %s\n", all.first_error.ToString().c_str());
  }
  return table;
}

}  // namespace stampmill
