#include "compiler/passes/pass_options.h"

#include "gtest/gtest.h"

namespace stampmill {
namespace {

TEST(PassOptionsTest, OnlyTheCanonicalFormIsRead) {
  EXPECT_TRUE(ParsePassOptions("cpu:x86-64", "")->fuse);
  EXPECT_FALSE(ParsePassOptions("cpu:x86-64", "fuse=0")->fuse);
  EXPECT_FALSE(ParsePassOptions("cpu:x86-64", "channels-last=0")->channels_last);
  EXPECT_FALSE(ParsePassOptions("cpu:x86-64", "fuse=0 channels-last=0")->channels_last);
  EXPECT_FALSE(ParsePassOptions("cpu:x86-64", "fuse=0")->bf16_products);
  EXPECT_TRUE(ParsePassOptions("cpu:x86-64", "activation-precision=bf16")->bf16_products);
  EXPECT_TRUE(ParsePassOptions("cpu:x86-64", "fuse=0 activation-precision=bf16")->bf16_products);
  EXPECT_TRUE(ParsePassOptions("cpu:x86-64", "activation-precision=f32")->exact_rows);
  EXPECT_FALSE(ParsePassOptions("cpu:x86-64", "activation-precision=f32")->bf16_products);
  EXPECT_FALSE(ParsePassOptions("cpu:x86-64", "")->exact_rows);
  for (const char* wrong : {"activation-precision=int8", "activation-precision=bf16 fuse=0",
                            "fuse=1", "channels-last=0 fuse=0", "fuse=0 ", "x"}) {
    EXPECT_FALSE(ParsePassOptions("cpu:x86-64", wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace stampmill
