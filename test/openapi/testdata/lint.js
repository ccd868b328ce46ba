// Prints what redocly lint says of the files that are its arguments, with its recommended rules.
import { createConfig, lint } from "@redocly/openapi-core";

const config = await createConfig({ extends: ["recommended"] });
for (const ref of process.argv.slice(2)) {
  for (const problem of await lint({ ref, config })) {
    console.log(`${ref}${problem.location[0]?.pointer}: ${problem.severity}: ${problem.message} (${problem.ruleId})`);
  }
}
