#include <doctest/doctest.h>

#include "linnet/error.h"
#include "runtime/cache/manifest.h"
#include "runtime/cache/sha256.h"
#include "tests/cache/shared.h"

using namespace linnet;
using cache_test::files_of;
using cache_test::key_of;
using Fields = CacheKey::Fields;

TEST_CASE("sha256: the vectors of FIPS 180-4 and NIST's examples") {
  for (auto hash : {sha256_hex, sha256_hex_portable}) {
    CHECK(hash("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK(hash("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
               "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu") ==
          "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    CHECK(hash(std::string(1'000'000, 'a')) ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

TEST_CASE("sha256: the processor's instructions and plain C++ agree at every length") {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    CHECK(sha256_hex(text) == sha256_hex_portable(text));
    text += static_cast<char>(i * 31);
  }
}

TEST_CASE("key: every name and every text changes it, their order does not") {
  const CacheKey key({{"problem", "kda"}, {"target", "sm_90"}});
  CHECK(key.hex().size() == 64);
  CHECK(CacheKey(Fields{{"target", "sm_90"}, {"problem", "kda"}}).hex() == key.hex());
  CHECK(CacheKey(Fields{{"problem", "kda"}, {"target", "sm_100"}}).hex() != key.hex());
  CHECK(CacheKey(Fields{{"problem", "gla"}, {"target", "sm_90"}}).hex() != key.hex());
  CHECK(CacheKey(Fields{{"problem", "kda"}, {"device", "sm_90"}}).hex() != key.hex());
  CHECK(CacheKey(Fields{{"problem", "kda"}}).hex() != key.hex());
  CHECK(CacheKey(Fields{{"a", "bc"}}).hex() != CacheKey(Fields{{"ab", "c"}}).hex());
  CHECK(CacheKey(Fields{{"a", "1\n1 b 1 2"}}).hex() !=
        CacheKey(Fields{{"a", "1"}, {"b", "2"}}).hex());
}

TEST_CASE("key: a long text counts in full but is kept as its digest") {
  std::string source(5000, 'x'), other = source;
  other.back() = 'y';
  const CacheKey key({{"source", source}});
  CHECK(key.hex() != CacheKey(Fields{{"source", other}}).hex());
  CHECK(key.fields()[0].second == "5000 bytes of sha256 " + sha256_hex(source));
  CHECK(CacheKey(key.fields()).hex() == key.hex());
}

TEST_CASE("key: no fields, no name and a name twice are refused") {
  CHECK_THROWS_AS(CacheKey(Fields{}), InternalError);
  CHECK_THROWS_AS(CacheKey(Fields{{"", "x"}}), InternalError);
  CHECK_THROWS_AS(CacheKey(Fields{{"a", "x"}, {"a", "y"}}), InternalError);
}

TEST_CASE("manifest: what is written reads back, quotes, newlines and control characters too") {
  const CacheKey key({{"problem", "kda \"K 128\" \\ \n\t\x01 \xc3\xa9"}, {"empty", ""}});
  const Manifest manifest = Manifest::of(key, files_of("kda"), 1234567890);
  const Manifest copy = Manifest::parse(manifest.text());
  CHECK(copy.key.hex() == key.hex());
  CHECK(copy.key.fields() == key.fields());
  CHECK(copy.created == 1234567890);
  REQUIRE(copy.files.size() == 2);
  CHECK(copy.files.at("kernel.bin").bytes == 1000);
  CHECK(copy.files.at("kernel.bin").sha256 == sha256_hex(files_of("kda").at("kernel.bin")));
}

TEST_CASE("manifest: cut off or changed at any byte it is refused, or still of its key") {
  const Manifest manifest = Manifest::of(key_of("kda"), files_of("kda"), 1);
  const std::string text = manifest.text();
  for (size_t size = 0; size + 1 < text.size(); ++size)
    CHECK_THROWS_AS(Manifest::parse(text.substr(0, size)), Error);
  for (size_t i = 0; i < text.size(); ++i)
    for (char c : {'\0', '"', '}', '7', '\xff'}) {
      std::string changed = text;
      changed[i] = c;
      try {
        const Manifest read = Manifest::parse(changed);
        CHECK(read.key.hex() == key_of("kda").hex());
      } catch (const Error&) {
      }
    }
}

TEST_CASE("manifest: a file name that leads elsewhere is refused, stored or read") {
  for (const char* name : {"", ".", "..", "../x", "a/b", "/etc/passwd", ".hidden", "manifest.json"})
    CHECK_THROWS_AS(Manifest::of(key_of("kda"), {{name, "x"}}, 1), InternalError);
  std::string text = Manifest::of(key_of("kda"), {{"kernel.bin", "x"}}, 1).text();
  text.replace(text.find("kernel.bin"), 10, "../../../x");
  CHECK_THROWS_AS(Manifest::parse(text), Error);
}
