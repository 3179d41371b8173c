#include "cli/render_status.hpp"

#include "cli/human.hpp"
#include "tests/cli/golden.hpp"

#include <gmock/gmock.h>

#include <regex>

namespace gradsieve::cli {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kDocuments = {"two_nodes", "trouble", "single_node", "hostile"};

HealthView health(const std::string& state, double age) {
    return {state, 4711, age, false, "/run/gradsieve/status", "", ""};
}
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

TEST(RenderStatus, Ordinary_screen_is_as_drawn) {
    expect_golden("two_nodes.80.txt", render_status(view_of("two_nodes"), health("live", 0.1), plain(80)));
    expect_golden("two_nodes.100.txt", render_status(view_of("two_nodes"), health("live", 0.1), plain(100)));
}
TEST(RenderStatus, Screen_full_of_trouble_is_as_drawn) {
    expect_golden("trouble.80.txt", render_status(view_of("trouble"), health("hung", 7.2), plain(80)));
    expect_golden("trouble.120.txt", render_status(view_of("trouble"), health("dead", 75), plain(120)));
}
TEST(RenderStatus, Quiet_single_node_is_as_drawn) {
    expect_golden("single_node.100.txt", render_status(view_of("single_node"), health("stopped", 400), plain(100)));
}
TEST(RenderStatus, States_that_are_kept_gone_on_from_and_lost_are_as_drawn) {
    expect_golden("states.100.txt", render_status(view_of("states"), health("live", 0.1), plain(100)));
}
TEST(RenderStatus, Document_of_wrong_types_and_escape_codes_is_drawn_harmlessly) {
    const auto text = render_status(view_of("hostile"), health("live", 0), plain(80));
    expect_golden("hostile.80.txt", text);
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_EQ(text.find('\a'), std::string::npos);
    EXPECT_EQ(text.find("\u202e"), std::string::npos);
}
TEST(RenderStatus, Empty_document_says_that_nothing_was_published) {
    const auto text = render_status({}, health("live", 0), plain(80));
    EXPECT_THAT(text, HasSubstr("nothing published yet"));
    EXPECT_THAT(text, testing::Not(HasSubstr("no jobs")));
}

TEST(RenderStatus, Similarity_has_a_column_where_some_codec_measures_it) {
    auto view = view_of("two_nodes");
    EXPECT_THAT(render_status(view, health("live", 0), plain(120)), testing::Not(HasSubstr("SIMILAR")));
    view.jobs.at(0).tensors.at(1).similarity = 0.98765;
    const auto text = render_status(view, health("live", 0), plain(120));
    EXPECT_THAT(text, HasSubstr("SIMILAR"));
    EXPECT_THAT(text, testing::ContainsRegex("fc1.weight.* 0.988"));
    EXPECT_THAT(text, testing::ContainsRegex("fc2.weight.* -\n"));
}
TEST(RenderStatus, A_budget_says_what_it_chose_and_what_that_saves) {
    auto view = view_of("two_nodes");
    EXPECT_THAT(render_status(view, health("live", 0), plain(120)), testing::Not(HasSubstr("budget")));
    auto& budget = view.jobs.at(0).budget;
    budget.bytes_per_step = 200'000;
    budget.origin = "client";
    budget.groups = {{.name = "",
                      .verdict = "holding",
                      .text = "ratio = 0.0135 in place of ratio = 0.01",
                      .limit = 200'000,
                      .density = 1.35,
                      .cost = 196'012.5,
                      .coded_ms = 28.1,
                      .plain_ms = 240.2}};
    const auto text = [&] { return render_status(view, health("live", 0), plain(160)); };
    EXPECT_THAT(text(),
                HasSubstr("budget      196 kB of 200 kB a step · holding · ratio = 0.0135 in place of ratio = 0.01"));
    EXPECT_THAT(text(), HasSubstr("saves 212.1 ms of 240.2 ms a step"));
    EXPECT_THAT(text(), HasSubstr("from the client"));
    budget.groups[0].coded_ms = 241.3;
    EXPECT_THAT(text(), HasSubstr("costs 1.1 ms more than plain fp32 would"));
    budget.groups[0].plain_ms.reset();
    EXPECT_THAT(text(), testing::Not(HasSubstr("costs")));
    budget.bytes_per_step.reset();
    budget.ms_per_step = 15;
    budget.groups[0].limit = 15;
    budget.groups[0].cost.reset();
    EXPECT_THAT(text(), HasSubstr("budget      15.0 ms a step · holding"));
}
TEST(RenderStatus, Where_compression_may_step_aside_it_says_what_it_chose_and_what_that_saves) {
    auto view = view_of("two_nodes");
    EXPECT_THAT(render_status(view, health("live", 0), plain(120)), testing::Not(HasSubstr("compression")));
    auto& aside = view.jobs.at(0).step_aside;
    aside = {.text = "on: codecs are faster than the link would be with plain bytes",
             .tensors = 10,
             .eligible = 8,
             .aside = 0,
             .trying = 0,
             .coded_ms = 28.0,
             .plain_ms = 240.2,
             .saved_ms = 212.2,
             .refusals = {{"it is plain already", 2}}};
    const auto text = [&] { return render_status(view, health("live", 0), plain(200)); };
    EXPECT_THAT(text(), HasSubstr("compression on: codecs are faster than the link would be with plain bytes · saves "
                                  "212.2 ms of 240.2 ms a step · 2 of 10 may not: it is plain already"));
    aside.text = "off for 3 of 10 tensors, sent as bf16: link faster than codec";
    aside.aside = 3;
    aside.coded_ms = 50;
    aside.saved_ms = 21.5;
    EXPECT_THAT(text(), HasSubstr("sent as bf16: link faster than codec · saves 21.5 ms of 50.0 ms a step"));
    aside.aside = 0;
    aside.saved_ms = -1.5;
    EXPECT_THAT(text(), HasSubstr("plain might save 1.5 ms"));
    aside.aside = 1;
    EXPECT_THAT(text(), HasSubstr("costs 1.5 ms more than codecs would"));
    aside.coded_ms.reset();
    EXPECT_THAT(text(), testing::Not(HasSubstr("costs")));
}
TEST(RenderStatus, Gpus_that_share_tensors_say_how_they_reach_each_other) {
    auto view = view_of("trouble");
    ASSERT_FALSE(view.gpus.empty());
    view.gpus.front().has_context = true;
    EXPECT_THAT(render_status(view, health("live", 0), plain(120)), testing::Not(HasSubstr("peers staged")));
    view.gpus.front().peers = "staged";
    EXPECT_THAT(render_status(view, health("live", 0), plain(120)), HasSubstr("peers staged"));
}

TEST(RenderStatus, First_line_tells_the_four_states_apart_with_pid_and_age) {
    const auto view = view_of("two_nodes");
    EXPECT_EQ(first_line(render_status(view, health("live", 0.1), plain(100))),
              "● live  pid 4711 · up 1 h 3 min · heartbeat 0.1 s ago · node a · gradsieved 0.1.0");
    EXPECT_EQ(first_line(render_status(view, health("hung", 7.2), plain(100))),
              "▲ hung  pid 4711 is there · no heartbeat for 7.2 s · node a · gradsieved 0.1.0");
    EXPECT_EQ(first_line(render_status(view, health("dead", 12), plain(100))),
              "✖ dead  pid 4711 is gone · last heartbeat 12 s ago · node a · gradsieved 0.1.0");
    EXPECT_EQ(first_line(render_status(view, health("stopped", 200), plain(100))),
              "○ stopped  pid 4711 was stopped 3 min 20 s ago · node a · gradsieved 0.1.0");
    auto suspended = health("hung", 4);
    suspended.is_suspended = true;
    EXPECT_THAT(render_status(view, suspended, plain(100)), HasSubstr("'kill -CONT 4711' lets it go on"));
}
TEST(RenderStatus, No_line_is_wider_than_asked_for) {
    for (const auto& name : kDocuments) {
        const auto view = view_of(name);
        for (const auto* state : {"live", "hung", "dead", "stopped"})
            for (std::size_t width = 60; width <= 160; ++width) {
                std::istringstream lines(render_status(view, health(state, 123456), plain(width)));
                for (std::string line; std::getline(lines, line);)
                    ASSERT_LE(display_width(line), width) << name << " at " << width << ": " << line;
            }
    }
}
TEST(RenderStatus, Colour_changes_nothing_but_colour) {
    static const std::regex kEscape("\x1b\\[[0-9;]*m");
    for (const auto& name : kDocuments) {
        const auto view = view_of(name);
        const auto coloured = render_status(view, health("live", 1), {90, 0, true, true});
        EXPECT_EQ(std::regex_replace(coloured, kEscape, ""), render_status(view, health("live", 1), plain(90))) << name;
        EXPECT_THAT(coloured, testing::StartsWith("\x1b[32m● live\x1b[0m"));
    }
}
TEST(RenderStatus, Without_unicode_every_byte_of_ours_is_ascii) {
    const auto text = render_status(view_of("two_nodes"), health("live", 1), {80, 0, false, false});
    EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char character) {
        return static_cast<unsigned char>(character) < 0x80;
    })) << text;
}
TEST(RenderStatus, Largest_tensors_are_shown_and_the_rest_is_counted) {
    StatusView view;
    view.format = 1;
    view.jobs.resize(1);
    for (std::uint64_t number = 0; number < 100; ++number) {
        TensorView tensor;
        tensor.name = "tensor" + std::to_string(number);
        tensor.elements = number == 7 ? 1'000'000 : number;
        view.jobs[0].tensors.push_back(tensor);
    }
    const auto text = render_status(view, health("live", 0), plain(100), 3);
    EXPECT_LT(text.find("tensor7 "), text.find("tensor98 ")) << "in the document's order";
    EXPECT_THAT(text, HasSubstr("tensor99 "));
    EXPECT_THAT(text, testing::Not(HasSubstr("tensor97 ")));
    EXPECT_THAT(text, HasSubstr("and 97 smaller ones with 4,746 elements; --all shows them"));
    EXPECT_THAT(render_status(view, health("live", 0), plain(100), SIZE_MAX), HasSubstr("tensor0 "));
}

TEST(RenderLine, Parts_wrap_under_the_first_one) {
    EXPECT_EQ(render_line("label", {{"one"}, {""}, {"two"}}, plain(60)), "  label       one · two\n");
    EXPECT_EQ(render_line("label", {{std::string(40, 'x')}, {"second part"}}, plain(60)),
              "  label       " + std::string(40, 'x') + "\n              second part\n");
    EXPECT_EQ(render_line("label", {{std::string(80, 'x')}}, plain(60)),
              "  label       " + std::string(45, 'x') + "…\n");
    EXPECT_EQ(render_line("label", {{std::string(30, 'x') + " " + std::string(30, 'y')}, {"z"}}, plain(60)),
              "  label       " + std::string(30, 'x') + "\n              " + std::string(30, 'y') + " · z\n");
    EXPECT_EQ(render_line("label", {{""}}, plain(60)), "");
}
TEST(RangesText, Runs_are_joined) {
    EXPECT_EQ(ranges_text({}), "");
    EXPECT_EQ(ranges_text({3}), "3");
    EXPECT_EQ(ranges_text({0, 1, 2, 5, 7, 8}), "0-2, 5, 7-8");
}

}  // namespace
}  // namespace gradsieve::cli
