#include "wire/model_names.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

constexpr ModelId kLlama{0}, kQwen{1}, kExtra{2};

// Two processes whose folders hold the models in another order, and each one that the other has not.
class ModelNamesTest : public testing::Test {
 protected:
  ModelNamesTest() {
    here_.add(kLlama, {"llama", 11});
    here_.add(kQwen, {"qwen", 22});
    there_.add(ModelId(0), {"only-there", 33});
    there_.add(ModelId(1), {"llama", 11});
    there_.add(ModelId(2), {"qwen", 22});
  }
  Arrival cross(const Message& message) { return *decode(encode(message, 7, there_), here_); }

  ModelNames here_, there_;
};

Submit submit(ModelId model) {
  Submit out;
  out.request.id = RequestId(5);
  out.request.model = model;
  out.request.prompt = {1};
  return out;
}

TEST_F(ModelNamesTest, EveryMessageAboutAModelArrivesWithTheNumberThatItHasHere) {
  EXPECT_EQ(std::get<Submit>(cross(submit(ModelId(1))).message).request.model, kLlama);
  EXPECT_EQ(std::get<SetResident>(cross(SetResident{ModelId(2), true}).message).model, kQwen);
  EXPECT_EQ(std::get<Configure>(cross(Configure{ModelId(2), {}}).message).model, kQwen);
  EXPECT_EQ(std::get<MigrateRequests>(cross(MigrateRequests{ModelId(1)}).message).model, kLlama);
  EXPECT_EQ(cross(Cancel{RequestId(3), 1}).life, 7u);
}

TEST_F(ModelNamesTest, AReportIsOfTheModelsThatBothHave) {
  NodeStatus status;
  for (const uint32_t model : {0, 1, 2}) {
    status.models.emplace_back().model = ModelId(model);
    status.switches.emplace_back().model = ModelId(model);
    status.switches.back().dropped = {ModelId(0), ModelId(1)};
    status.events.emplace_back().model = ModelId(model);
    status.next.push_back(ModelId(model));
  }
  const Arrival arrival = cross(status);
  EXPECT_EQ(arrival.unknown_model, "") << "a folder may hold more";
  const auto& seen = std::get<NodeStatus>(arrival.message);
  EXPECT_EQ(seen.next, (std::vector<ModelId>{kLlama, kQwen}));
  ASSERT_EQ(seen.models.size(), 2u);
  EXPECT_EQ(seen.models[1].model, kQwen);
  ASSERT_EQ(seen.switches.size(), 2u);
  EXPECT_EQ(seen.switches[0].model, kLlama);
  EXPECT_EQ(seen.switches[0].dropped, std::vector<ModelId>{kLlama});
  ASSERT_EQ(seen.events.size(), 2u);
  EXPECT_EQ(seen.events[1].model, kQwen);
}

TEST_F(ModelNamesTest, AModelThatIsNotHereIsSaidByName) {
  const std::string why = cross(submit(ModelId(0))).unknown_model;
  EXPECT_NE(why.find("'only-there'"), std::string::npos) << why;
  EXPECT_NE(why.find("folder"), std::string::npos) << why;
  EXPECT_NE(cross(submit(ModelId(9))).unknown_model, "") << "one without a name";
}

TEST_F(ModelNamesTest, OneOfTheSameNameWithOtherFilesIsSaidWithBothDigests) {
  there_.add(ModelId(3), {"qwen", 0xabc});
  const std::string why = cross(submit(ModelId(3))).unknown_model;
  for (const char* said : {"'qwen'", "0000000000000016", "0000000000000abc", "--kv-cache-dtype"}) EXPECT_NE(why.find(said), std::string::npos) << why;
  NodeStatus status;
  status.next = {ModelId(1), ModelId(3)};
  const Arrival report = cross(status);
  EXPECT_EQ(std::get<NodeStatus>(report.message).next, std::vector<ModelId>{kLlama});
  EXPECT_EQ(report.unknown_model, why);
}

TEST_F(ModelNamesTest, WhoHasNoFilesTakesTheNameForIt) {
  there_.add(ModelId(3), {"qwen", 0});
  EXPECT_EQ(std::get<Submit>(cross(submit(ModelId(3))).message).request.model, kQwen);
}

TEST_F(ModelNamesTest, OfAModelThatWasReplacedEachNumberIsFoundByItsFiles) {
  here_.add(kExtra, {"qwen", 44});
  there_.add(ModelId(3), {"qwen", 44});
  EXPECT_EQ(std::get<Submit>(cross(submit(ModelId(3))).message).request.model, kExtra);
  EXPECT_EQ(std::get<Submit>(cross(submit(ModelId(2))).message).request.model, kQwen);
}

TEST_F(ModelNamesTest, WithinAProcessNumbersStayEvenIfTwoHaveTheSameFiles) {
  here_.add(kExtra, {"qwen", 22});
  for (const ModelId model : {kQwen, kExtra}) {
    EXPECT_EQ(std::get<Submit>(decode(encode(submit(model), 0, here_), here_)->message).request.model, model);
  }
  EXPECT_EQ(std::get<Submit>(decode(encode(submit(ModelId(9))), here_)->message).request.model, ModelId(9)) << "it names none";
}

}  // namespace
}  // namespace shoal
