#include "devices/device.h"

#include <utility>

namespace stampmill {

Buffer::Buffer(Buffer&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)),
      address_(std::exchange(other.address_, 0)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      token_(std::exchange(other.token_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    if (device_ != nullptr) device_->Release(*this);
    device_ = std::exchange(other.device_, nullptr);
    address_ = std::exchange(other.address_, 0);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
    token_ = std::exchange(other.token_, 0);
  }
  return *this;
}

Buffer::~Buffer() {
  if (device_ != nullptr) device_->Release(*this);
}

}  // namespace stampmill
