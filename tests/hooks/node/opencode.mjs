// Plays opencode: calls the hooks of a plugin as it does, and prints what came of it.
import { readFileSync } from "node:fs"

const [, , plugin] = process.argv
const script = JSON.parse(readFileSync(0, "utf8"))
const aborted = []
const client = {
  session: {
    abort: async ({ path }) => {
      aborted.push(path.id)
      if (path.id === "gone") throw new Error("no such session")
    },
  },
}
const { LoopGuard, ...others } = await import(plugin)
if (Object.keys(others).length > 0) throw new Error("opencode calls each export as a plugin")
const hooks = await LoopGuard({ client })

const told = []
for (const [name, input, output] of script) {
  let refused = null
  await hooks[name](input, output).catch((error) => (refused = error.message))
  told.push({ refused, output: output?.output ?? null })
}
// Ends by force: the time limit of a program that is not there is left running.
process.stdout.write(JSON.stringify({ told, aborted }), () => process.exit())
