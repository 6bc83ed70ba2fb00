// Written by `otel-loopguard hook install opencode`, which also says how to remove it.
import { spawn } from "node:child_process"

const PROGRAM = "otel-loopguard"
const MODE = "observe"
const REMEMBERED = 1000

// What the guard answers to an event; nothing where it cannot be asked.
const ask = (event) =>
  new Promise((resolve) => {
    const words = ["hook", "run", "opencode", "--mode", MODE]
    const options = { stdio: ["pipe", "pipe", "ignore"], timeout: 10000, windowsHide: true }
    try {
      let said = ""
      const child = spawn(PROGRAM, words, options)
      child.on("error", () => resolve({}))
      child.on("close", () => {
        try {
          resolve(JSON.parse(said) ?? {})
        } catch {
          resolve({})
        }
      })
      child.stdout.setEncoding("utf8").on("data", (part) => (said += part))
      child.stdin.on("error", () => {})
      child.stdin.end(JSON.stringify(event))
    } catch {
      resolve({})
    }
  })

// Hints wait for the next output of a tool; an error of a call that was refused is no failure.
export const LoopGuard = async ({ client }) => {
  const hints = new Map()
  const settled = new Set()

  const settle = (call) => {
    settled.add(call)
    if (settled.size > REMEMBERED) settled.delete(settled.values().next().value)
  }
  const tell = async (sessionID, event, fields) => {
    const answer = await ask({ event, sessionID, ...fields })
    if (answer.hint) hints.set(sessionID, [...(hints.get(sessionID) ?? []), answer.hint])
    if (hints.size > REMEMBERED) hints.delete(hints.keys().next().value)
    if (answer.stop) await client.session.abort({ path: { id: sessionID } }).catch(() => {})
    return answer
  }

  return {
    "chat.message": async ({ sessionID }, { parts }) => {
      const said = parts
        .filter((part) => part.type === "text")
        .flatMap((part) => (part.synthetic ? [] : [part.text]))
      if (said.length > 0) await tell(sessionID, "chat.message", { text: said.join("\n") })
    },
    "tool.execute.before": async ({ tool, sessionID, callID }, { args }) => {
      const answer = await tell(sessionID, "tool.execute.before", { tool, callID, args })
      if (!answer.deny) return
      settle(callID)
      throw new Error(answer.deny)
    },
    "tool.execute.after": async ({ tool, sessionID, callID, args }, output) => {
      const { exit } = output.metadata ?? {}
      const result = { tool, callID, args, output: output.output, metadata: { exit } }
      await tell(sessionID, "tool.execute.after", result)
      if (!hints.has(sessionID) || typeof output.output !== "string") return
      output.output = [output.output, ...hints.get(sessionID)].join("\n\n")
      hints.delete(sessionID)
    },
    event: async ({ event }) => {
      if (event.type === "session.idle" || event.type === "session.compacted") {
        await tell(event.properties.sessionID, event.type)
      } else if (event.type === "session.deleted") {
        await tell(event.properties.info.id, event.type)
        hints.delete(event.properties.info.id)
      } else if (event.type === "message.part.updated" && event.properties.part.type === "tool") {
        const { tool, sessionID, callID, state } = event.properties.part
        if (state.status !== "error" || settled.has(callID)) return
        settle(callID)
        await tell(sessionID, "tool.error", { tool, callID, args: state.input, error: state.error })
      }
    },
  }
}
