// An agent with Vercel's AI SDK behind the gateway. Nothing about it knows of Flowgate but the base address and the key.
//
//   const agent = new Agent("chat", "http://127.0.0.1:8000", process.env.ASSISTANT_KEY!, "qwen3");
//   console.log(await agent.says("Send Ann what is on https://example.org/news"));

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool, type LanguageModel, type ModelMessage } from "ai";
import { z } from "zod";

export type Form = "chat" | "responses" | "messages";

/** The model of the gateway, in one of the forms that it speaks. */
export function model(form: Form, address: string, apiKey: string, name: string): LanguageModel {
  const baseURL = `${address}/v1`;
  if (form === "messages") return createAnthropic({ baseURL, apiKey })(name);
  const openai = createOpenAI({ baseURL, apiKey });
  return form === "chat" ? openai.chat(name) : openai.responses(name);
}

export class Agent {
  /** The whole chat, which goes to the gateway every time. */
  messages: ModelMessage[] = [];
  private readonly model: LanguageModel;

  constructor(
    form: Form,
    address: string,
    key: string,
    name: string,
    private readonly isStreamed = false,
    private readonly run: (name: string, input: unknown) => Promise<string> = async (name) => `${name} is not there`,
  ) {
    this.model = model(form, address, key, name);
  }

  private tools() {
    const run = this.run;
    return {
      read_page: tool({
        description: "Reads a page.",
        inputSchema: z.object({ url: z.string() }),
        execute: (input) => run("read_page", input),
      }),
      send_mail: tool({
        description: "Sends a mail.",
        inputSchema: z.object({ to: z.string(), body: z.string() }),
        execute: (input) => run("send_mail", input),
      }),
      send_money: tool({
        description: "Pays.",
        inputSchema: z.object({ to: z.string(), amount: z.number() }),
        execute: (input) => run("send_money", input),
      }),
    };
  }

  /** Says something, and gives the answer when all tools that it calls have run. */
  async says(prompt: string): Promise<string> {
    this.messages.push({ role: "user", content: prompt });
    const settings = {
      model: this.model,
      messages: this.messages,
      tools: this.tools(),
      stopWhen: stepCountIs(10),
      maxOutputTokens: 4096,
      maxRetries: 0,
    };
    if (!this.isStreamed) {
      const { text, response } = await generateText(settings);
      this.messages.push(...response.messages);
      return text;
    }
    let failed: unknown;
    const result = streamText({ ...settings, onError: ({ error }) => void (failed = error) });
    await result.consumeStream();
    if (failed) throw failed;
    const [text, response] = await Promise.all([result.text, result.response]);
    this.messages.push(...response.messages);
    return text;
  }
}
