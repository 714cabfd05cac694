#include "compiler/passes/pass_options.h"

#include "gtest/gtest.h"

namespace stampmill {
namespace {

TEST(PassOptionsTest, OnlyTheCanonicalFormIsRead) {
  EXPECT_TRUE(ParsePassOptions("cpu:x86-64", "")->fuse);
  EXPECT_FALSE(ParsePassOptions("cpu:x86-64", "fuse=0")->fuse);
  EXPECT_FALSE(ParsePassOptions("cpu:x86-64", "channels-last=0")->channels_last);
  EXPECT_FALSE(ParsePassOptions("cpu:x86-64", "fuse=0 channels-last=0")->channels_last);
  for (const char* wrong : {"fuse=1", "channels-last=0 fuse=0", "fuse=0 ", "x"}) {
    EXPECT_FALSE(ParsePassOptions("cpu:x86-64", wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace stampmill
