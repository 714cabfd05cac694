#include "server/cli/table.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"

namespace stampmill {
namespace {

std::string CellText(const boost::json::value& cell) {
  if (cell.is_string()) return std::string(cell.get_string().c_str());
  if (cell.is_null()) return "-";
  if (cell.is_double()) {
    const double value = cell.get_double();
    const double size = std::fabs(value);
    return size != 0 && (size < 0.01 || size >= 1e7) ? absl::StrFormat("%.3g", value)
           : size < 10                               ? absl::StrFormat("%.3f", value)
           : size < 1000                             ? absl::StrFormat("%.1f", value)
                                                     : absl::StrFormat("%.0f", value);
  }
  return boost::json::serialize(cell);
}

std::string CsvText(const boost::json::value& cell) {
  if (cell.is_null()) return "";
  if (!cell.is_string()) return boost::json::serialize(cell);
  const std::string text(cell.get_string().c_str());
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

}  // namespace

std::string SizeText(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes, " B") : absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string TimeText(int64_t unix_seconds) {
  const time_t time = unix_seconds;
  tm parts = {};
  gmtime_r(&time, &parts);
  char text[32];
  return std::string(text, strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &parts));
}

void Table::Add(boost::json::array row) {
  CHECK_EQ(row.size(), columns_.size());
  rows_.push_back(std::move(row));
}

std::string Table::Text() const {
  std::vector<std::vector<std::string>> lines = {columns_};
  for (const auto& row : rows_) {
    std::vector<std::string>& line = lines.emplace_back();
    for (const boost::json::value& cell : row) line.push_back(CellText(cell));
  }
  std::vector<size_t> widths(columns_.size(), 0);
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    std::string out;
    for (size_t i = 0; i < line.size(); ++i) {
      // Numbers to the right, under their heads.
      const bool number = !rows_.empty() && rows_[0][i].is_number();
      const std::string space(widths[i] - line[i].size(), ' ');
      absl::StrAppend(&out, i == 0 ? "" : "  ", number ? space : "", line[i], number ? "" : space);
    }
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(out), "\n");
  }
  return text;
}

std::string Table::Csv() const {
  std::string text = absl::StrCat(absl::StrJoin(columns_, ","), "\n");
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&text, i == 0 ? "" : ",", CsvText(row[i]));
    }
    text += "\n";
  }
  return text;
}

boost::json::array Table::Json() const {
  boost::json::array array;
  for (const auto& row : rows_) {
    boost::json::object object;
    for (size_t i = 0; i < row.size(); ++i) object[columns_[i]] = row[i];
    array.push_back(std::move(object));
  }
  return array;
}

void PrintJson(const boost::json::value& value) {
  printf("%s\n", boost::json::serialize(value).c_str());
}

}  // namespace stampmill
