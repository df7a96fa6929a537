// Tar archives without Python: each format's headers, WebDataset's rule, what is refused, and broken bytes of all
// kinds.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <random>
#include <vector>

#include "tests/tar_in_memory.h"

namespace fastshard {
namespace {

std::string tar_of(const std::vector<std::string>& names) {
  std::string tar;
  for (const std::string& name : names) tar += tar_member(name, "x");
  return tar + tar_end();
}

std::string pax(const std::vector<std::string>& records, char type = 'x') {
  std::string payload;
  for (const std::string& record : records) {
    // The length counts its own digits and the two separators.
    std::size_t length = record.size() + 3;
    while (std::to_string(length).size() + record.size() + 2 > length) ++length;
    payload += std::to_string(length) + " " + record + "\n";
  }
  return tar_member("PaxHeaders/x", payload, type);
}

TEST(TarShards, NeighboursWithOneKeyAreASample) {
  EXPECT_EQ(described(tar_of({"a/b.jpg", "a/b.seg.PNG", "a/c.jpg", "d.cls"})),
            "a/b: jpg@512+1 seg.png@1536+1\na/c: jpg@2560+1\nd: cls@3584+1\n");
}

TEST(TarShards, ThePathsKeyIsWebDatasets) {
  const auto split = [](const std::string& name) {
    const std::size_t dot = key_length(name);
    return dot == std::string::npos ? "-" : name.substr(0, dot) + "|" + name.substr(dot + 1);
  };
  // Each as webdataset 1.0.2 has it; tests/webdataset/test_tar_equal.py compares random ones.
  const std::vector<std::vector<std::string>> wanted = {{"a.b", "a|b"},
                                                        {"a", "-"},
                                                        {".a", "-"},
                                                        {"d/.a", "d/|a"},
                                                        {"e/d/.a", "e/d/|a"},
                                                        {"e.f/.a", "-"},
                                                        {"e.f/d/.a", "e.f/d/|a"},
                                                        {"a.b/c", "-"},
                                                        {"a.b/c.d.e", "a.b/c|d.e"},
                                                        {"a.", "a|"},
                                                        {"e.f//.a", "e.f//|a"},
                                                        {"./a.b", "./a|b"},
                                                        {"../../x.a", "../../x|a"},
                                                        {"__x__", "-"},
                                                        {"__x__/a.b", "-"},
                                                        {"__a.b", "__a|b"},
                                                        {"__", "-"},
                                                        {"__a.b__", "-"},
                                                        {"d.e\nf/a.b", "-"},
                                                        {"d\ne/a.b", "d\ne/a|b"},
                                                        {"__x__\n", "-"},
                                                        {"__x__\ny.z", "__x__\ny|z"},
                                                        {"/.a", "/|a"}};
  for (const auto& pair : wanted) EXPECT_EQ(split(pair[0]), pair[1]) << pair[0];
}

TEST(TarShards, LinksDirectoriesAndDevicesArePassedOver) {
  std::string tar;
  // Their sizes mean nothing: no data follows.
  for (char type : {'1', '2', '3', '4', '5', '6'}) tar += with_checksum(tar_header("../../x.jpg", 1000, type));
  EXPECT_EQ(described(tar + tar_of({"a.jpg"})), "a: jpg@3584+1\n");
}

TEST(TarShards, TheOldestFormatHasDirectoriesByNameAlone) {
  std::string directory = tar_header("d.x/", 1000, '\0'), file = tar_header("d/a.x", 0, '\0');
  directory.replace(257, 8, 8, '\0');
  file.replace(257, 8, 8, '\0');
  EXPECT_EQ(described(with_checksum(directory) + with_checksum(file) + tar_end()), "d/a: x@1024+0\n");
}

TEST(TarShards, ThePrefixIsPosixsAndNotGnus) {
  std::string block = tar_header("b.jpg", 0);
  block.replace(345, 5, "dir/a");
  EXPECT_EQ(described(with_checksum(block) + tar_end()), "dir/a/b: jpg@512+0\n");
  block.replace(257, 8, std::string("ustar  \0", 8));
  EXPECT_EQ(described(with_checksum(block) + tar_end()), "b: jpg@512+0\n");
}

TEST(TarShards, LongNamesOfGnuAndPaxReachTheNextMemberOnly) {
  const std::string name(300, 'n');
  for (const std::string& before :
       {tar_member("././@LongLink", name + ".jpg" + '\0', 'L'), pax({"path=" + name + ".jpg"})}) {
    EXPECT_EQ(described(before + tar_member("short.x", "x") + tar_of({"b.cls"})),
              name + ": jpg@1536+1\nb: cls@2560+1\n");
  }
  const std::string link = tar_member("././@LongLink", name, 'K') + tar_member("l.jpg", "", '2');
  EXPECT_EQ(described(link + tar_of({"b.cls"})), "b: cls@2048+1\n");
}

TEST(TarShards, ASizeMayBeInBase256OrInPax) {
  const std::string data(700, 'd');
  std::string block = tar_header("a.x", 0);
  block.replace(124, 12, std::string("\x80\0\0\0\0\0\0\0\0\0\x02\xbc", 12));
  EXPECT_EQ(described(with_checksum(block) + data + std::string(324, '\0') + tar_end()), "a: x@512+700\n");
  const std::string member = with_checksum(tar_header("a.x", 0)) + data + std::string(324, '\0');
  EXPECT_EQ(described(pax({"mtime=1.5", "size=700"}) + member + tar_end()), "a: x@1536+700\n");
  EXPECT_EQ(described(pax({"comment=0123"}, 'g') + tar_of({"a.x"})), "a: x@1536+1\n");
}

TEST(TarShards, AnArchiveMayEndAtAnyBlockAndTheIndexSaysSo) {
  const std::string member = tar_member("a.x", "x"), zeros(kTarBlock, '\0');
  EXPECT_EQ(described(member), "a: x@512+1\nno end\n");
  EXPECT_EQ(described(member + zeros), "a: x@512+1\nno end\n");
  EXPECT_EQ(described(member + zeros + member), "a: x@512+1\nno end\n");
  EXPECT_EQ(described(member + tar_end() + member), "a: x@512+1\n");
  EXPECT_EQ(described(tar_end()), "");
}

struct Refused {
  std::string tar, why;
};

class BrokenTar : public testing::TestWithParam<Refused> {};

TEST_P(BrokenTar, IsRefusedWithOffsetKeyAndReason) { EXPECT_EQ(described(GetParam().tar), GetParam().why); }

std::string huge_header(const char* size) {
  std::string block = tar_header("a.x", 0);
  block.replace(124, 12, std::string(size, 12));
  return with_checksum(block);
}

const std::string kFirst = tar_member("a.x", "x");

INSTANTIATE_TEST_SUITE_P(
    All, BrokenTar,
    testing::Values(
        Refused{"", "offset 0: the file is empty"}, Refused{"abc", "offset 0: the file ends within a header"},
        Refused{
            std::string("\x1f\x8b") + std::string(1000, 'z'),
            "offset 0: the file is compressed (gzip), and byte ranges of it can't be read; unpack it to a plain tar"},
        Refused{
            std::string("\x28\xb5\x2f\xfd"),
            "offset 0: the file is compressed (zstd), and byte ranges of it can't be read; unpack it to a plain tar"},
        Refused{kFirst + "abc", "offset 1024, at key 'a': the file ends within a header"},
        Refused{kFirst + tar_header("b.x", 0),
                "offset 1024, at key 'a': the header's checksum should be 1751, and is 0"},
        Refused{
            kFirst + tar_member("b.x", "123456").substr(0, 515),
            "offset 1024, at key 'a': 'b.x' is cut off: it has 6 bytes from offset 1536 on, and the file ends at 1539"},
        Refused{
            kFirst + tar_member("b.x", "123").substr(0, 515),
            "offset 1024, at key 'a': 'b.x' is cut off: it has 3 bytes from offset 1536 on, and the file ends at 1539, "
            "before the end of its last block"},
        Refused{huge_header("\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff"),
                "offset 0: 'a.x' is cut off: it has 9223372036854775807 bytes from offset 512 on, and the file ends at "
                "512"},
        Refused{huge_header("\x80\0\0\0\x80\0\0\0\0\0\0\0"), "offset 0: the header's size is 2^63 or more"},
        Refused{huge_header("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
                "offset 0: the header's size is negative"},
        Refused{huge_header("00000000009\0"), "offset 0: the header's size is no octal number"},
        Refused{kFirst + tar_member("s.x", "", 'S'),
                "offset 1024, at key 'a': 's.x' is a sparse file, which can't be read by byte range"},
        Refused{pax({"GNU.sparse.major=1"}) + kFirst, "offset 512: a sparse file, which can't be read by byte range"},
        Refused{pax({"size=1"}, 'g') + kFirst, "offset 512: a pax header that gives all members one path or size"},
        Refused{tar_member("p", "99 path=a\n", 'x') + kFirst, "offset 512: a record of the pax header is malformed"},
        Refused{tar_member("p", "5 =a\n", 'x') + kFirst, "offset 512: a record of the pax header is malformed"},
        Refused{pax({"size=99999999999999999999"}) + kFirst, "offset 512: the pax header's size is too large"},
        Refused{kFirst + pax({"path=b.x"}), "offset 1024, at key 'a': the file ends after an extended header"},
        Refused{pax({"path=b.x"}) + tar_end(), "offset 0: the archive ends after an extended header"},
        Refused{with_checksum(tar_header("p", 1 << 25, 'x')),
                "offset 0: an extended header of 33554432 bytes; at most 16777216 are read"},
        Refused{kFirst + tar_member("b.x", "", 'M'), "offset 1024, at key 'a': 'b.x' is of an unknown type, 77"},
        Refused{tar_of({"a.x", "a.X"}), "offset 1024, at key 'a': field 'x' comes a second time in the sample"},
        Refused{
            tar_of({"a.x", "b.x", "a.y"}),
            "offset 2560: key 'a' comes a second time, after other samples; first it is at 512. A sample's files must "
            "be neighbours"},
        Refused{tar_of({"a.__key__"}), "offset 0, at key 'a': field '__key__' is a name that WebDataset uses itself"}));

// A tar with something of everything, for what follows.
std::string rich_tar() {
  return tar_member("d/", "", '5') + tar_of({"d/a.jpg", "d/a.cls"}).substr(0, 2048) +
         pax({"path=d/long.jpg", "size=1"}) + tar_member("x", "y") +
         tar_member("././@LongLink", std::string(600, 'n') + ".b", 'L') + tar_member("z.a", "123") +
         tar_member("l.a", "", '2') + tar_of({"e.a", "e.b"});
}

TEST(TarShards, EveryPrefixOfAnArchiveIsReadAlikeWholeAndInPieces) {
  const std::string tar = rich_tar();
  ASSERT_EQ(described(tar).find("offset"), std::string::npos);
  // From memory of their own size: a read beyond them is one that AddressSanitizer sees.
  for (std::size_t n = 0; n <= tar.size(); n += n % 512 < 3 ? 1 : 85) {
    const std::vector<unsigned char> bytes(tar.begin(), tar.begin() + static_cast<std::ptrdiff_t>(n));
    check_any_bytes(bytes.data(), n);
  }
}

TEST(TarShards, BrokenBytesAreReadAlikeWholeAndInPieces) {
  std::mt19937 random(5);
  const std::string tar = rich_tar();
  for (int round = 0; round < 3000; ++round) {
    std::string broken = tar;
    for (unsigned change = random() % 4 + 1; change; --change) {
      const std::size_t at = random() % broken.size();
      const std::size_t field = at / 512 * 512 + (random() % 2 ? 124 + random() % 33 : at % 512);
      broken[field % broken.size()] = static_cast<char>(random() % 3 ? random() % 256 : '0' + random() % 10);
    }
    // Most would end at a checksum; half of them get right ones again.
    if (random() % 2) broken = with_right_checksums(broken);
    check_any_bytes(reinterpret_cast<const unsigned char*>(broken.data()), broken.size());
  }
}

TEST(TarShards, AFileIsReadByPreadAsFromMemory) {
  // Small members first, then large ones, so that both ways of reading come.
  std::string tar;
  for (int i = 0; i < 3030; ++i) {
    tar +=
        tar_member("k" + std::to_string(i) + ".a", std::string(static_cast<std::size_t>(i < 3000 ? i : 200'000), 'x'));
  }
  tar += tar_end();
  std::FILE* file = std::tmpfile();
  ASSERT_EQ(std::fwrite(tar.data(), 1, tar.size(), file), tar.size());
  std::fflush(file);
  TarIndexer whole(tar.size()), read(tar.size()), cut(tar.size());
  whole.feed(0, reinterpret_cast<const unsigned char*>(tar.data()), tar.size());
  read.read(fileno(file));
  EXPECT_EQ(read.samples().offsets, whole.samples().offsets);
  EXPECT_EQ(read.samples().sizes, whole.samples().sizes);
  EXPECT_EQ(read.samples().keys, whole.samples().keys);
  EXPECT_EQ(read.samples().sample_starts.size(), 3031u);
  ASSERT_EQ(ftruncate(fileno(file), 1 << 20), 0);
  EXPECT_THROW(cut.read(fileno(file)), TarError);
  std::fclose(file);
}

}  // namespace
}  // namespace fastshard
