// Runs the check that it is told by name; without one it lists them.
#include "check.h"

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)();
  } checks[] = {
      {"numbers", check_numbers},       {"emulator", check_emulator},
      {"sums", check_sums},             {"extremes", check_extremes},
      {"dots", check_dots},             {"bad_graphs", check_bad_graphs},
      {"attention", check_attention},   {"attention_back", check_attention_back},
      {"transpose", check_transpose},   {"map", check_map},
      {"gather", check_gather},         {"draws", check_draws},
  };
  for (const auto &c : checks) {
    if (argc < 2) puts(c.name);
    if (argc == 2 && strcmp(argv[1], c.name) == 0) {
      c.run();
      return 0;
    }
  }
  return argc < 2 ? 0 : 2;
}
