#include "transport/zmq_options.hpp"

#include "transport_testing.hpp"

namespace gradsieve::transport {
namespace {

using namespace testing;  // NOLINT: the folder's own helpers

std::string refusal(const std::function<void(ZmqOptions&)>& change) {
    ZmqOptions options;
    options.nodes = {{"a", "10.0.0.1", 7077}, {"b", "fd00::2", 7077}};
    change(options);
    return check_options(options).to_string();
}

TEST(ZmqOptions, Defaults_with_and_without_nodes_are_fine) {
    EXPECT_EQ(refusal([](ZmqOptions&) {}), "ok");
    EXPECT_EQ(refusal([](ZmqOptions& options) { options.nodes.clear(); }), "ok");
}
TEST(ZmqOptions, Each_wrong_option_is_named_with_what_is_allowed) {
    EXPECT_EQ(refusal([](ZmqOptions& options) { options.self = 2; }),
              "invalid-argument: own position 2: there are 2 nodes; name one of the node list");
    EXPECT_EQ(refusal([](ZmqOptions& options) { options.nodes[1].name = "a"; }),
              "invalid-argument: node name \"a\": names have 1 to 255 bytes and are used once; rename the node");
    EXPECT_EQ(refusal([](ZmqOptions& options) { options.nodes[1].port = 0; }),
              "invalid-argument: node b: host \"fd00::2\" and port 0: both are needed, the port from 1 to 65535; "
              "complete the node list");
    EXPECT_EQ(refusal([](ZmqOptions& options) { options.nodes[1].host = "10.0.0.1"; }),
              "invalid-argument: node b: address 10.0.0.1:7077 is another node's too: allowed is one node per address "
              "and port; give each its own");
    EXPECT_EQ(refusal([](ZmqOptions& options) { options.lanes = 0; }),
              "invalid-argument: lanes 0: allowed are 1 to 64; change lanes");
    EXPECT_EQ(refusal([](ZmqOptions& options) { options.lanes = 65; }),
              "invalid-argument: lanes 65: allowed are 1 to 64; change lanes");
    EXPECT_EQ(refusal([](ZmqOptions& options) { options.frame_limit_bytes = 1023; }),
              "invalid-argument: frame limit of 1023 bytes: allowed are 1024 to 4294967295; change the limit");
    EXPECT_EQ(
        refusal([](ZmqOptions& options) { options.silent_after = options.heartbeat_every; }),
        "invalid-argument: heartbeat every 1000000000 ns, silent after 1000000000 ns: the first must be positive and "
        "shorter than the second; change one");
}
TEST(ZmqOptions, Encryption_needs_a_key_of_its_own_for_each_node_and_our_own_secret) {
    const auto a = make_key_pair().value();
    const auto b = make_key_pair().value();
    const auto with_keys = [&](const std::function<void(ZmqOptions&)>& change) {
        return refusal([&](ZmqOptions& options) {
            options.nodes[0].public_key = a.public_key;
            options.nodes[1].public_key = b.public_key;
            options.secret_key = a.secret_key;
            change(options);
        });
    };
    EXPECT_EQ(with_keys([](ZmqOptions&) {}), "ok");
    EXPECT_EQ(with_keys([](ZmqOptions& options) { options.nodes[1].public_key = "x"; }),
              "invalid-argument: node b: public key \"x\": allowed are 40 characters of Z85; enter what 'gradsieve "
              "keygen' printed");
    EXPECT_EQ(with_keys([&](ZmqOptions& options) { options.nodes[1].public_key = a.public_key; }),
              "invalid-argument: node b: public key " + a.public_key +
                  " is another node's too: allowed is one node per key; make each its own");
    const auto other = with_keys([&](ZmqOptions& options) { options.secret_key = b.secret_key; });
    EXPECT_EQ(other, "invalid-argument: node a: the public half of its secret key is " + b.public_key +
                         ": allowed is the node list's, " + a.public_key +
                         "; enter the former there, or use the other key file");
    EXPECT_EQ(other.find(b.secret_key.text()), std::string::npos);
    EXPECT_EQ(refusal([](ZmqOptions& options) { options.nodes[0].public_key = "x"; }), "ok")
        << "plain text does not look at keys";
}
TEST(ZmqOptions, Addresses_of_both_families_and_names_print) {
    EXPECT_EQ(address_text({"a", "10.0.0.1", 1}), "10.0.0.1:1");
    EXPECT_EQ(address_text({"a", "fd00::2", 2}), "[fd00::2]:2");
    EXPECT_EQ(address_text({"a", "node-a", 3}), "node-a:3");
}

}  // namespace
}  // namespace gradsieve::transport
