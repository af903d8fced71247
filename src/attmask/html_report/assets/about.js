// What was run: changes from the recipe, images, machine, all settings, and the command.

function drawAbout(host, run) {
  const { recipe, changes, config, facts, command } = run.about;
  host.append(make("h3", {}, recipe ? "Differences from the recipe" : "Recipe", recipe ? [" ", named(recipe)] : null));
  if (changes.length) {
    host.append(plainTable("Differences from the recipe", ["setting", "recipe", "this run"], changes.map((change) => [make("code", {}, make("bdi", {}, change.key)), change.recipe, change.run])));
  } else host.append(make("p", { class: "muted" }, recipe ? "No setting differs." : "No recipe was used."));
  const groups = [...new Set(["images", "hardware", "software", ...facts.map(({ group }) => group)])];
  host.append(make("div", { class: "facts" }, groups.map((group) => {
    const some = facts.filter((fact) => fact.group === group);
    return some.length ? make("div", {}, make("h3", {}, prose(group)), make("dl", {}, some.map(({ name, value }) => [make("dt", {}, prose(name)), make("dd", {}, prose(value))]))) : null;
  })));
  if (command) host.append(make("h3", {}, "Command"), commandLine(command));
  if (!config.length) return;
  host.append(make("details", { class: "config" }, make("summary", {}, `All ${config.length} settings`),
    plainTable("All settings", ["setting", "value", "paper", "meaning"], config.map((row) => [make("code", {}, make("bdi", {}, row.key)), row.value, row.paper, row.help]), "tall")));
}
