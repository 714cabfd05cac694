// Text for people and programs: tables with aligned columns, sizes and JSON values. One list of
// rows gives the readable table, CSV and JSON alike.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stampmill {

std::string SizeText(uint64_t bytes);        // "1.5 MiB"
std::string TimeText(int64_t unix_seconds);  // "2024-03-01 12:00:00", UTC

// Columns by name; a cell is a JSON value, shown as text without quotes.
class Table {
 public:
  explicit Table(std::vector<std::string> columns) : columns_(std::move(columns)) {}

  // REQUIRES: one cell for each column.
  void Add(boost::json::array row);
  bool empty() const { return rows_.empty(); }

  std::string Text() const;  // with a head line
  std::string Csv() const;
  boost::json::array Json() const;  // one object for each row

 private:
  const std::vector<std::string> columns_;
  std::vector<boost::json::array> rows_;
};

// Prints the value as one line of JSON on standard output.
void PrintJson(const boost::json::value& value);

}  // namespace stampmill
