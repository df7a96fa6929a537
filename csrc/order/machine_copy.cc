#include "order/machine_copy.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "order/fork.h"

#ifdef __linux__
#define FASTSHARD_SHARES 1
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#endif

namespace fastshard {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

std::int64_t now() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

// Five minutes, and a microsecond a sample, which is ten times what a slow machine needs: only a maker that was stopped
// (a debugger, SIGSTOP) takes longer. A dead one is noticed at once.
std::int64_t timeout_for(std::uint64_t count) {
  const char* given = std::getenv("FASTSHARD_SHARE_TIMEOUT");
  constexpr std::uint64_t kMost = std::uint64_t{1} << 50;  // a larger count can't be made, and would overflow below
  if (!given) return 300 * kSecond + static_cast<std::int64_t>(std::min(count, kMost)) * 1000;
  char* end = nullptr;
  const double seconds = std::strtod(given, &end);
  if (end == given || *end || !(seconds >= 0 && seconds <= 1e6)) {
    throw std::invalid_argument("FASTSHARD_SHARE_TIMEOUT must be a number of seconds in [0, 1000000], got \"" +
                                std::string(given) + "\"");
  }
  return static_cast<std::int64_t>(seconds * static_cast<double>(kSecond));
}

// With a millisecond between them: who has the name and does not listen after that never will.
constexpr int kMostTries = 2000;

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

}  // namespace

MachineCopy::MachineCopy(std::string name, std::uint64_t count, std::uint64_t width)
    : name_(std::move(name)),
      count_(count),
      width_(width),
      timeout_(timeout_for(count)),
      generation_(fork_generation()) {}

#ifndef FASTSHARD_SHARES

MachineCopy::~MachineCopy() = default;

bool MachineCopy::get(const Make& make, const std::atomic<bool>&) {
  own_ = std::make_unique<HugeBuffer>(count_, width_);
  return make(own_->as<void>());
}

void MachineCopy::serve(const std::atomic<bool>&) {}
void MachineCopy::stop() {}

#else

namespace {

struct Address {
  sockaddr_un socket{};
  socklen_t size;

  // The user is in the name, lest two users meet. A leading zero byte is what makes it abstract.
  explicit Address(const std::string& name) {
    const std::string full = "fastshard-" + std::to_string(geteuid()) + "-" + name;
    socket.sun_family = AF_UNIX;
    const std::size_t length = std::min(full.size(), sizeof(socket.sun_path) - 1);
    std::memcpy(socket.sun_path + 1, full.data(), length);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&socket); }
};

// A descriptor that is closed at the end of its scope.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }

 private:
  int number_;
};

bool same_user(int connection) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

// A message of one byte with a descriptor beside it.
struct Message {
  char byte = 0;
  iovec bytes{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};

  Message() {
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
  }
};

constexpr int kNobodyThere = -1, kNoneFree = -2;

int received_descriptor(int connection) {
  Message message;
  if (recvmsg(connection, &message.header, MSG_CMSG_CLOEXEC) <= 0) return kNobodyThere;
  const cmsghdr* found = CMSG_FIRSTHDR(&message.header);
  if (!found || found->cmsg_level != SOL_SOCKET || found->cmsg_type != SCM_RIGHTS) return kNoneFree;
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(found), sizeof(descriptor));
  return descriptor;
}

void send_descriptor(int connection, int descriptor) {
  Message message;
  cmsghdr* beside = CMSG_FIRSTHDR(&message.header);
  beside->cmsg_level = SOL_SOCKET;
  beside->cmsg_type = SCM_RIGHTS;
  beside->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(beside), &descriptor, sizeof(descriptor));
  sendmsg(connection, &message.header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

// Workers of loaders live long and rarely look at an order; one that does asks for the copy itself.
void keep_from_children(void* memory, std::size_t bytes) { madvise(memory, bytes, MADV_DONTFORK); }

// Moves `bytes` bytes a slice at a time, so that there are never two copies; returns how many it could. They were not
// made in the memfd because that has no huge pages on most systems, and swaps at random addresses need them.
std::size_t move_to(int copy, char* from, std::size_t bytes) {
  constexpr std::size_t kSlice = std::size_t{1} << 24;
  std::size_t moved = 0;
  while (moved < bytes) {
    const std::size_t slice = std::min(kSlice, bytes - moved);
    for (std::size_t done = 0; done < slice;) {
      const ssize_t wrote = pwrite(copy, from + moved + done, slice - done, static_cast<off_t>(moved + done));
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) return moved;
      done += static_cast<std::size_t>(wrote);
    }
    madvise(from + moved, slice, MADV_DONTNEED);
    moved += slice;
  }
  return moved;
}

bool move_back(int copy, char* to, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t got = pread(copy, to + done, bytes - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

MachineCopy::~MachineCopy() {
  if (generation_ != fork_generation()) {
    own_.release();  // leaked: freeing it is the parent's affair, as are the mapping, which a child does not inherit,
                     // and
    return;          // the descriptors, which it has closed
  }
  close_listener();
  if (mapped_) munmap(const_cast<void*>(mapped_.load()), bytes());
  if (copy_ >= 0) {
    const NoFork no_fork;
    close_here(copy_);
  }
}

bool MachineCopy::get(const Make& make, const std::atomic<bool>& cancelled) {
  const std::int64_t deadline = now() + timeout_;
  for (int tries = 0; now() < deadline; ++tries) {
    if (cancelled) return false;
    const Found found = join(cancelled, deadline);
    if (found == Found::kNobody && tries > kMostTries) break;
    if (found == Found::kCopy) return true;
    if (found == Found::kUnable || (found == Found::kNobody && listen())) break;
    nap();  // another one was quicker, and is about to listen
  }
  try {
    own_ = std::make_unique<HugeBuffer>(count_, width_);
    keep_from_children(own_->as<void>(), bytes());
    if (make(own_->as<void>())) return true;
  } catch (...) {
    close_listener();
    throw;
  }
  close_listener();  // nobody may wait for what will not come
  return false;
}

// Takes the name. False if somebody has it.
bool MachineCopy::listen() {
  const NoFork no_fork;  // a child with the listener would keep the name, and nobody would answer
  const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) return false;
  const Address address(name_);
  if (bind(made, address.get(), address.size) != 0 || ::listen(made, SOMAXCONN) != 0) {
    close(made);
    return false;
  }
  close_in_children(made);
  listener_ = made;
  return true;
}

void MachineCopy::close_listener() {
  const NoFork no_fork;
  if (listener_ >= 0) close_here(listener_);
  listener_ = -1;
}

MachineCopy::Found MachineCopy::join(const std::atomic<bool>& cancelled, std::int64_t deadline) {
  const Descriptor connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connection.get() < 0) return Found::kUnable;
  const Address address(name_);
  if (connect(connection.get(), address.get(), address.size) != 0) {
    if (errno == ECONNREFUSED) return Found::kNobody;
    return errno == EAGAIN ? Found::kGone : Found::kUnable;  // EAGAIN: more are queueing than the system allows
  }
  if (!same_user(connection.get())) return Found::kUnable;
  for (pollfd waiting{connection.get(), POLLIN, 0}; poll(&waiting, 1, 20) == 0;) {
    if (cancelled || now() >= deadline) return Found::kGone;
  }
  const NoFork no_fork;
  const Descriptor copy(received_descriptor(connection.get()));
  if (copy.get() < 0) return copy.get() == kNobodyThere ? Found::kGone : Found::kUnable;
  return map(copy.get()) ? Found::kCopy : Found::kUnable;
}

// Maps a copy, if it is what it should be and can't change any more.
bool MachineCopy::map(int copy) {
  struct stat facts{};
  const int seals = fcntl(copy, F_GET_SEALS);
  if (fstat(copy, &facts) != 0 || static_cast<std::uint64_t>(facts.st_size) != bytes()) return false;
  if (seals < 0 || (seals & kSeals) != kSeals) return false;
  void* mapped = mmap(nullptr, bytes(), PROT_READ, MAP_SHARED, copy, 0);
  if (mapped == MAP_FAILED) return false;
  keep_from_children(mapped, bytes());
  mapped_ = mapped;
  return true;
}

// Moves what was made into a memfd. False if that can't be had: then it stays this process's own.
bool MachineCopy::publish() {
  const ForkGuard guard(moving_);
  {
    const NoFork no_fork;
    copy_ = memfd_create("fastshard", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (copy_ < 0) return false;
    close_in_children(copy_);
  }
  const std::size_t moved = move_to(copy_, own_->as<char>(), bytes());
  if (moved == bytes() && fcntl(copy_, F_ADD_SEALS, kSeals) == 0 && map(copy_)) {
    own_.reset();
    return true;
  }
  if (!move_back(copy_, own_->as<char>(), moved)) {
    std::fputs("fastshard: the order of an epoch could not be moved to shared memory, nor back\n", stderr);
    std::abort();  // what is left of it is wrong, and there is nobody to tell
  }
  return false;
}

void MachineCopy::serve(const std::atomic<bool>& cancelled) {
  while (listener_ >= 0 && !cancelled) {
    pollfd waiting{listener_, POLLIN, 0};
    if (poll(&waiting, 1, -1) < 0 || cancelled) continue;
    if (copy_ < 0 && !publish()) return close_listener();  // who waits makes its own
    const NoFork no_fork;  // a child with the connection would keep its other end waiting if this process died
    const Descriptor connection(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.get() >= 0) {
      if (same_user(connection.get())) send_descriptor(connection.get(), copy_);
    } else if (errno == EMFILE || errno == ENFILE) {
      nap();  // no descriptor is free; whoever waits goes on waiting
    }
  }
}

void MachineCopy::stop() {
  const NoFork no_fork;  // the listener can't be closed meanwhile, nor its number be another's
  if (listener_ >= 0) shutdown(listener_, SHUT_RDWR);
}

#endif

}  // namespace fastshard
