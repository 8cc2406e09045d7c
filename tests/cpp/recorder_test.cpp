// Tests of recorders: what the stream gives them, and that a recording runs again.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "device.h"
#include "runtime/commands/command_list.h"
#include "runtime/context.h"
#include "runtime/error.h"

using namespace torch_webgpu;

namespace {

// out[i] = out[i] * 5 + in[i] + value.
const Pipeline& scale_pipeline() {
  return word_pipeline(3, "scale", "out[id.x] = out[id.x] * 5u + in[id.x] + params.value;");
}

struct Attached {
  explicit Attached(Recorder& recorder) { stream().set_recorder(&recorder); }
  ~Attached() { stream().set_recorder(nullptr); }
};

// One command of each kind, and two dispatches whose order shows.
void run(const Buffer& out, const Buffer& in, const Buffer& other) {
  const uint32_t seven = 7;
  stream().upload(in, 4, &seven, 4);
  stream().dispatch(scale_pipeline(), {{&out, 0, 0}, {&in, 0, 0}}, CountParams{4, 1}, {1, 1, 1});
  stream().copy(out, 0, other, 4, 8);
  stream().clear(in, 8, 8);
  stream().dispatch(scale_pipeline(), {{&out, 0, 0}, {&other, 0, 0}}, CountParams{3, 2}, {1, 1, 1});
}

} // namespace

TEST_CASE("a recording without execution changes nothing, and runs when it is replayed") {
  const Words start = {1, 2, 3, 4};
  Owned out(4 * kWords);
  Owned in(4 * kWords);
  Owned other(4 * kWords);
  auto reset = [&] {
    write(*out, start);
    write(*in, {10, 20, 30, 40});
    write(*other, {100, 200, 300, 400});
  };
  reset();
  run(*out, *in, *other);
  const std::vector<Words> expected = {words_of(*out), words_of(*in), words_of(*other)};
  CHECK(expected[1] == Words{10, 7, 0, 0});

  reset();
  const StreamStats before = stream().stats();
  CommandList list;
  {
    Attached attached(list);
    run(*out, *in, *other);
  }
  const StreamStats after = stream().stats();
  CHECK(after.dispatches == before.dispatches);
  CHECK(after.copies == before.copies);
  CHECK(words_of(*out) == start);

  list.replay(stream());
  CHECK(words_of(*out) == expected[0]);
  CHECK(words_of(*in) == expected[1]);
  CHECK(words_of(*other) == expected[2]);

  reset();
  list.replay(stream());
  CHECK(words_of(*out) == expected[0]);
}

TEST_CASE("recorded commands say all that a player needs") {
  Owned out(4 * kWords);
  Owned in(4 * kWords);
  Owned other(4 * kWords);
  CommandList list;
  {
    Attached attached(list);
    run(*out, *in, *other);
  }
  const auto& commands = list.commands();
  REQUIRE(commands.size() == 5);
  const auto& upload = std::get<CommandList::Upload>(commands[0]);
  CHECK(upload.target == in.buffer);
  CHECK(upload.offset == 4);
  CHECK(upload.data == std::vector<uint8_t>{7, 0, 0, 0});
  const auto& dispatch = std::get<CommandList::Dispatch>(commands[1]);
  CHECK(dispatch.pipeline == &scale_pipeline());
  REQUIRE(dispatch.bindings.size() == 2);
  CHECK(dispatch.bindings[0] == Binding{out.buffer, 0, out.buffer->size});
  CHECK(dispatch.bindings[1] == Binding{in.buffer, 0, in.buffer->size});
  const CountParams params = {4, 1};
  REQUIRE(dispatch.params.size() == sizeof(params));
  CHECK(std::memcmp(dispatch.params.data(), &params, sizeof(params)) == 0);
  CHECK(dispatch.grid == Grid{1, 1, 1});
  const auto& copy = std::get<CommandList::Copy>(commands[2]);
  CHECK(copy.source == out.buffer);
  CHECK(copy.target == other.buffer);
  CHECK(copy.target_offset == 4);
  CHECK(copy.bytes == 8);
  const auto& clear = std::get<CommandList::Clear>(commands[3]);
  CHECK(clear.target == in.buffer);
  CHECK(clear.offset == 8);
}

TEST_CASE("a recorder may let the stream execute") {
  Owned out(4 * kWords);
  Owned in(4 * kWords);
  Owned other(4 * kWords);
  write(*out, {1, 2, 3, 4});
  write(*in, {10, 20, 30, 40});
  write(*other, {0, 0, 0, 0});
  CommandList list(/*executes=*/true);
  {
    Attached attached(list);
    run(*out, *in, *other);
    CHECK(words_of(*in) == Words{10, 7, 0, 0});
  }
  CHECK(list.commands().size() == 5);
}

TEST_CASE("there is nothing to read while commands are not executed") {
  Owned buffer(4 * kWords);
  write(*buffer, {1, 2, 3, 4});
  CommandList list;
  CommandList second;
  {
    Attached attached(list);
    CHECK_THROWS_WITH_AS(words_of(*buffer), doctest::Contains("recorded and not executed"), Error);
    CHECK_THROWS_AS(stream().read_async(*buffer, 0, 4), Error);
    CHECK_THROWS_WITH_AS(stream().set_recorder(&second), doctest::Contains("recorded already"),
                         Error);
    CHECK_NOTHROW(stream().synchronize());
    // Checks come before the recorder.
    CHECK_THROWS_AS(stream().clear(*buffer, 0, 1 << 20), Error);
  }
  CHECK(list.commands().empty());
  CHECK(words_of(*buffer) == Words{1, 2, 3, 4});
}
